"""llama-server's defaults are ggbench's, field by field; whatever differs has a reason."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CONTEXT, DIFFERENCES, MODEL
from tests.engines.test_llama_setup import Params, load  # noqa: F401 - a fixture

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=512, threads=1)
ALWAYS = {"progress_callback", "n_ctx", "n_threads", "n_threads_batch"}


@pytest.mark.parametrize(
    ("setup", "dry", "differs"),
    [
        (SETUP, False, set()),
        (replace(SETUP, memory_limit_bytes=1 << 30), False, {"load_mode"}),
        (replace(SETUP, n_gpu_layers=0, memory_limit_bytes=1 << 30), False, {"load_mode", "devices", "n_gpu_layers"}),
        (replace(SETUP, n_gpu_layers=0), True, {"load_mode", "devices", "n_gpu_layers", "no_alloc"}),
        (replace(SETUP, swa_full=True), False, {"swa_full"}),
        (replace(SETUP, n_seq_max=4), False, {"n_seq_max", "n_outputs_max"}),
        (replace(SETUP, n_outputs_max=512), False, {"n_outputs_max"}),
    ],
    ids=["defaults", "limit", "limit, no GPU", "dry, no GPU", "full SWA", "sequences", "outputs"],
)
def test_what_is_passed_is_what_llama_server_passes(
    load: Callable[..., Params],  # noqa: F811 - the fixture
    setup: LlamaConfig,
    dry: bool,
    differs: set[str],
) -> None:
    params = load(setup, dry=dry)
    table = {**MODEL, **CONTEXT}
    passed = {name: _value(getattr(params.of_model, name)) for name in MODEL}
    passed |= {name: _value(getattr(params.of_context, name)) for name in CONTEXT}
    assert {name for name, value in table.items() if passed[name] != value} == ALWAYS | differs
    asked_for = {"n_gpu_layers", "swa_full", "n_seq_max", "n_outputs_max", "progress_callback"}
    assert (ALWAYS | differs) - asked_for <= set(DIFFERENCES)


def _value(field: Any) -> int | float | bool | None:  # noqa: ANN401 - whatever ctypes makes of a field
    """A number as it is; any pointer as None where it is null."""
    if isinstance(field, int | float):
        return field
    return 1 if field is not None and ctypes.cast(field, ctypes.c_void_p).value else None
