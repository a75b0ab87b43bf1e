"""Jobs that are recorded, and what comes of them."""

from __future__ import annotations

from ggbench.catalog.selector import Target
from ggbench.experiments.decode import EXPERIMENT as DECODE
from ggbench.experiments.prefill import EXPERIMENT as PREFILL
from ggbench.recording.driver import run_jobs
from ggbench.recording.experiment import Job
from ggbench.recording.progress import Finished
from ggbench.recording.rig import Rig
from ggbench.records.decode import DecodeResult, DecodeSettings
from ggbench.records.prefill import PrefillResult, PrefillSettings
from ggbench.records.run import Run
from ggbench.records.setup import LlamaSetup, Setup

PLAIN = LlamaSetup()


def decode_job(target: Target, n_gen: int, setup: Setup = PLAIN, *, repeat: int = 1) -> Job:
    return Job(DECODE, target, setup, DecodeSettings(n_gen, repeat=repeat))


def prefill_job(target: Target, *lengths: int, setup: Setup = PLAIN, repeat: int = 3) -> Job:
    return Job(PREFILL, target, setup, PrefillSettings(lengths, repeat))


def runs_of(rig: Rig, *jobs: Job) -> list[Run]:
    return [record.run for record in run_jobs(rig, jobs) if isinstance(record, Finished)]


def decoded(run: Run) -> DecodeResult:
    assert isinstance(run.result, DecodeResult)
    return run.result


def prefilled(run: Run) -> PrefillResult:
    assert isinstance(run.result, PrefillResult)
    return run.result
