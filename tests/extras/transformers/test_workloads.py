"""What Transformers' worker asks of its model, without torch."""

from types import SimpleNamespace
from typing import Any

from ggbench.engines.contract import ProveContext
from ggbench.engines.events import ContextProven, Event
from ggbench.extras.transformers.workloads import carry_out


def test_a_proof_compiles_the_token_alone() -> None:
    """Its batch is a prompt, of a length that no decode has: compiling it would take memory that no decode takes."""
    compiled: dict[int, bool] = {}
    events: list[Event] = []

    def timed_step(tokens: list[int], *, compiled: bool = True, _seen: dict[int, bool] = compiled) -> tuple[None, int]:
        _seen[len(tokens)] = compiled
        return None, 1

    model: Any = SimpleNamespace(
        n_cells=2048, left_bytes=None, clear=lambda: None, fill=lambda n_tokens: iter([1.0]),
        random_tokens=lambda n_seqs, n_tokens: [0] * n_tokens, timed_step=timed_step,
        cache=SimpleNamespace(get_seq_length=lambda: 2048),
    )  # fmt: skip
    carry_out(model, ProveContext(), events.append)
    assert compiled == {512: False, 1: True}
    assert isinstance(events[-1], ContextProven) and events[-1].full
