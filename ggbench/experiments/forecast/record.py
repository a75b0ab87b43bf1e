"""A forecast: the expected speed of a model, from twins of a few of its layers."""

from __future__ import annotations

from ggbench.engines.llama.config import LlamaConfig
from ggbench.record import Record
from ggbench.runs.run import Result, Run, Settings
from ggbench.sizing.layer_sample import StepCost
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.intervals import Estimate

PROMPTS = (512, 2048, 8192)
"""Prompt lengths to forecast."""


class ForecastSettings(Settings, Record):
    """Settings for measuring twins."""

    n_depth: int = 4097
    """Cells in use when the cost of the KV cache is measured: a multiple of the tokens copied at once, plus one."""
    n_gen: int = 8
    """Tokens timed each time; fewer if they are slow."""
    rounds: int = 5
    """Measurements of each twin, in turn, so that a slowdown of the machine affects all of them."""
    n_batch: int = 256
    """Sizes of the batches that give the cost of a prompt, in tokens; timed in the first three rounds."""

    @property
    def n_ctx_needed(self) -> int:
        """Cells of the context of each twin."""
        return self.n_depth + self.n_gen + self.n_batch + 2


class ForecastModel(Record):
    """The forecast model."""

    cost: StepCost


class ForecastPlacement(Record):
    """Layers of the model with one placement, GPU or main memory; a twin is timed with all its layers placed so."""

    number: int
    """From 0; the first has the output."""
    cost: StepCost
    setup: LlamaConfig
    """Places all layers of a twin this way."""
    name: str = ""
    """Shown to the user: `30 on the GPU`; empty for the only one."""


class ForecastTwin(Record):
    """A twin to measure."""

    number: int
    """From 0, in order of increasing layers."""
    layers: tuple[int, ...]
    """The layers of the model in this twin."""
    cost: StepCost


class TwinTiming(Record):
    """Timings of a few steps of a twin, and of a batch."""

    twin: int
    round: int
    n_depth: int
    step_ns: tuple[int, ...]
    batch_ns: int | None = None
    n_batch: int = 0
    placement: int = 0
    """Number of the placement of its layers."""


class ForecastResult(Result, Record):
    """Expected speeds of the model on this machine."""

    no_one_memory = "forecast from twins"

    basis: str
    """Source of the numbers: `twins of 2 and 6 of 32 layers`."""
    b_ms: Estimate | None = None
    w_tokens_per_ms: Estimate | None = None
    """None if unknown, or if latency does not grow."""
    tok_s: tuple[tuple[int, Estimate], ...] = ()
    """Decode speed by position."""
    prefill_ms: tuple[tuple[int, Estimate], ...] = ()
    """Time to read a prompt by its length."""
    limit: DecodeLimit | None = None


def result_of(run: Run) -> ForecastResult:
    """Return the forecast, empty unless all rounds were timed."""
    found = run.result_as(ForecastResult)
    return found if found and run.is_complete else ForecastResult("")
