"""Speeds of whole models as loaded here, and how far an expectation is off: shared by the tables of residuals."""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import DecodeAtDepth, Engine, Prefill, Source
from ggbench.engines.endings import Completed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve_one
from ggbench.runs.session import RunContext
from ggbench.stats.intervals import Estimate

N_DEPTH, N_PROMPT, LOADS = 4096, 512, 3


class Residual(msgspec.Struct, frozen=True):
    """One time of a model, in ms."""

    name: str
    expected: Estimate
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the expectation."""
        return self.expected.value / self.measured - 1

    @property
    def is_within(self) -> bool:
        """Whether the measured time is within the expected interval."""
        return self.expected.low <= self.measured <= self.expected.high

    def show(self, model: str, *more: str) -> None:
        """Print a row of the table, with more cells at its end."""
        expected, within = self.expected, "yes" if self.is_within else "no"
        interval = f"{expected.value:.1f} ({expected.low:.1f}–{expected.high:.1f})"
        cells = (model, self.name, interval, f"{self.measured:.1f}", f"{self.error:+.1%}", within, *more)
        print(f"| {' | '.join(cells)} |", flush=True)


def make_parser(description: str | None, cases: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser for the models to measure, by default the cases, and --remove."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("models", nargs="*", default=cases, help="MODEL:QUANT, or files")
    made.add_argument("--remove", action="store_true", help="delete the twins of all layers that this writes")
    return made


@contextlib.contextmanager
def on_disk(model: str, *, remove: bool) -> Iterator[tuple[Target, Path]]:
    """Write the model if it is a twin that is not on this disk yet; delete it afterwards if asked."""
    target = resolve_one(parse_model(model))
    was_there = target.path is not None
    path = materialize(target).paths[0]
    try:
        yield target, path
    finally:
        if remove and not was_there:
            path.unlink()


def measure_ms(context: RunContext, path: Path) -> tuple[float, float, float]:
    """Return a step near the beginning, a step after N_DEPTH tokens, and a prompt, of one load of the whole model."""
    setup = replace(LlamaConfig(), threads=context.threads, n_ctx=N_DEPTH + 256)
    with contextlib.closing(context.launch(setup, context.cancel)) as engine:
        *_, ending = engine.open(Source(path), setup)
        assert ending == Completed(), ending
        _step_ms(engine, 1)  # memory costs more at its first use
        near, far = (_step_ms(engine, depth) for depth in (1, N_DEPTH))
        prompts = [event for event in engine.run(Prefill(N_PROMPT, 1, 1)) if isinstance(event, PromptRead)]
    return near, far, prompts[0].elapsed_ns / 1e6


def _step_ms(engine: Engine, depth: int) -> float:
    events = [event for event in engine.run(DecodeAtDepth(depth, 8)) if isinstance(event, Steps)]
    return statistics.median(ns for event in events for ns in event.step_ns) / 1e6
