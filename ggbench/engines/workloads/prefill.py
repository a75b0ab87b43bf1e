"""Time prompts from an empty cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event, PromptRead

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel


class Prefill(Workload, frozen=True):
    """Read a prompt `repeat` times, after `warmup` that are not reported. Reports one `PromptRead` each."""

    name: ClassVar[str] = "prefill"
    stage: ClassVar[Stage] = "prefill"

    n_prompt: int
    repeat: int = 1
    warmup: int = 0


def carry_out(model: LlamaModel, request: Prefill, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused."""
    for number in range(request.warmup + request.repeat):
        elapsed_ns = model.read_prompts(request.n_prompt)
        if number >= request.warmup:
            emit(PromptRead(request.n_prompt, elapsed_ns))


REQUEST = Prefill
