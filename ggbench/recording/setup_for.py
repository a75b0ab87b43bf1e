"""The context that a run needs."""

from __future__ import annotations

from dataclasses import replace

from ggbench.errors import UsageError
from ggbench.records.decode import whole_steps
from ggbench.records.setup import LARGEST_N_CTX, LlamaSetup, Setup
from ggbench.units import format_count


def setup_for(setup: Setup, n_ctx_needed: int) -> Setup:
    """The setup with the n_ctx that was given, else with just enough in whole steps of llama.cpp's padding."""
    if not isinstance(setup, LlamaSetup):
        return setup
    return replace(setup, n_ctx=setup.n_ctx or whole_steps(n_ctx_needed))


def check_n_ctx(setup: Setup, n_ctx_needed: int) -> None:
    """Raise UsageError where the given n_ctx is too small for a run, or the run too long for any context."""
    if not isinstance(setup, LlamaSetup):
        return
    if setup.n_ctx is not None and setup.n_ctx < n_ctx_needed:
        raise UsageError(
            f"n_ctx {setup.n_ctx} does not hold the {n_ctx_needed} tokens of this run",
            "omit --n-ctx to use just enough, or measure fewer tokens",
        )
    n_ctx = setup.n_ctx or whole_steps(n_ctx_needed)
    if n_ctx > LARGEST_N_CTX:
        raise UsageError(
            f"this run needs an n_ctx of {format_count(n_ctx)}, and llama.cpp's maximum is "
            f"{format_count(LARGEST_N_CTX)}",
            "measure fewer tokens" if setup.n_ctx is None else "give a smaller --n-ctx",
        )
