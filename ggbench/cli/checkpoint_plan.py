"""`ggbench plan` of a checkpoint: the same rows without llama.cpp, whose options it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.commands.load_options import BudgetOptions
from ggbench.commands.options import HubOptions
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.checkpoints import FoundCheckpoint
    from ggbench.models.reference import ModelRef
    from ggbench.sizing.plan_record import Budget, PlanRow

_SHARED = ("n_ctx", "memory_limit_bytes", "main_gpu", "n_gpu_layers")
"""Fields that say which memory and how long a context, whatever engine runs it."""


def planned_rows(
    ref: ModelRef,
    memory: BudgetOptions,
    setup: LlamaConfig,
    hub: HubOptions,
    *,
    measures: bool,
) -> tuple[Budget, list[PlanRow], FoundCheckpoint]:
    """Return the memory, a row for each of QUANTS or each that there is, and what was planned. Raises GgbenchError."""
    from ggbench.models.checkpoints import find_checkpoint, planned_methods, wanted_methods
    from ggbench.sizing.checkpoint_plan import plan_checkpoint
    from ggbench.sizing.plan import PlanRequest
    from ggbench.sizing.what_helps import with_other_quants

    _refuse_llama_options(setup, memory)
    found = find_checkpoint(ref, hub=hub.access())
    methods = wanted_methods(found, ref)
    request = PlanRequest(memory.budget(setup, measures=measures), setup, memory.given)
    rows = plan_checkpoint(ref.label, found, methods or planned_methods(found), request)
    return request.budget, with_other_quants(rows), found


def sources(found: FoundCheckpoint) -> Mapping[str, str]:
    """Return where each kind of figure comes from."""
    files = "config.json alone, by what each method stores"
    if found.checkpoint.shards:
        files = f"the tensors of its safetensors as {found.checkpoint.method.name}, of other methods config.json"
    return {
        "weights": files,
        "kv_and_compute": "K and V by formula, a static cache; Transformers allocates the rest as it runs",
    }


def _refuse_llama_options(setup: LlamaConfig, memory: BudgetOptions) -> None:
    """Raise UsageError for an option that only llama.cpp has."""
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.command_line import setup_options

    defaults = LlamaConfig()
    rest = replace(setup, **{name: getattr(defaults, name) for name in _SHARED})
    given = setup_options(rest) or (["--mmproj"] if memory.mmproj else [])
    if given:
        raise UsageError(
            f"{given[0]} is llama.cpp's, and a checkpoint is run by Transformers",
            "omit it: the cache has the type of the weights that are not quantized",
        )
