"""One measurement of one candidate: a context of its own, and a few tokens or a prompt at each depth."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine, Source
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import PromptRead, Ready, Steps
from ggbench.engines.workloads.decode_at_depth import DecodeAtDepth
from ggbench.experiments.tune.record import MOST_GEN, DepthTiming, TuneCandidate, TuneSettings, TuneTiming

_FEWEST_GEN = 3
_GEN_S = 0.4
"""Seconds of decoding at each depth that one measurement aims at."""
_WARMUP_GEN = 2


class TuneTimer(msgspec.Struct, frozen=True):
    """Measures candidates on one engine, which keeps the model where only the context differs."""

    engine: Engine
    source: Source
    settings: TuneSettings
    on_started: Callable[[int], object]
    """Called with the number of each worker's process that is started."""
    n_gen: tuple[int, ...] = ()
    """Tokens to time at each depth; empty before the calibration."""

    def calibrated(self, baseline: TuneTiming) -> TuneTimer:
        """Return a timer that times as many tokens at each depth as take 0.4 s, from 3 to 64."""
        steps_s = [(at.step_ns or 0.0) / 1e9 for at in baseline.at]
        wanted = (round(_GEN_S / each) if each else 0 for each in steps_s)
        return replace(self, n_gen=tuple(min(MOST_GEN, max(_FEWEST_GEN, each)) for each in wanted))

    def time(self, candidate: TuneCandidate, *, is_fresh: bool = False) -> TuneTiming | Ending:
        """Return what it took, or how it ended where it did not complete; with `is_fresh` in a new worker."""
        if is_fresh:
            self.engine.close()
        ending: object = None
        for ending in self.engine.open(self.source, candidate.setup):
            if isinstance(ending, Ready) and ending.pid is not None:
                self.on_started(ending.pid)
        if not isinstance(ending, Completed):
            assert isinstance(ending, Ending)
            return ending
        decodes = self.settings.objective != "prefill"
        n_batch = self.settings.n_prompt if self.settings.objective != "decode" else 0
        found = []
        for index, n_depth in enumerate(self.settings.depths):
            n_gen = (self.n_gen[index] if self.n_gen else _WARMUP_GEN) if decodes else 0
            *events, ending = self.engine.run(DecodeAtDepth(max(1, n_depth), n_gen, n_batch))
            if not isinstance(ending, Completed):
                assert isinstance(ending, Ending)
                return ending
            steps = [ns for event in events if isinstance(event, Steps) for ns in event.step_ns]
            batch = next((event.elapsed_ns for event in events if isinstance(event, PromptRead)), None)
            found.append(DepthTiming(n_depth, statistics.median(steps) if steps else None, batch))
        return TuneTiming(candidate.number, tuple(found))
