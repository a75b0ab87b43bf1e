"""Jobs that are recorded, and what comes of them."""

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.measure import EXPERIMENT as DECODE
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.measure import EXPERIMENT as PREFILL
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.models.targets import Target
from ggbench.runs.driver import run_jobs
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext

PLAIN = LlamaConfig()


def decode_job(target: Target, n_gen: int, setup: EngineConfig = PLAIN, *, repeat: int = 1) -> Job:
    return Job(DECODE, target, setup, DecodeSettings(n_gen, repeat=repeat))


def prefill_job(target: Target, *lengths: int, setup: EngineConfig = PLAIN, repeat: int = 3) -> Job:
    return Job(PREFILL, target, setup, PrefillSettings(lengths, repeat))


def runs_of(rig: RunContext, *jobs: Job) -> list[Run]:
    return [record.run for record in run_jobs(rig, jobs) if isinstance(record, Finished)]


def decoded(run: Run) -> DecodeResult:
    assert isinstance(run.result, DecodeResult)
    return run.result


def prefilled(run: Run) -> PrefillResult:
    assert isinstance(run.result, PrefillResult)
    return run.result
