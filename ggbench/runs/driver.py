"""The driver of all experiments: prepares, starts, records, reads the machine, cancels and finishes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError

from msgspec.structs import replace

from ggbench.engines.endings import Ending, Outcome
from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.errors import DoesNotFit, GgbenchError
from ggbench.machine.readings import name_processes
from ggbench.machine.records import GpuUse
from ggbench.runs.experiment import Concluded, Conclusion, Experiment, Job
from ggbench.runs.machine_use import throttled
from ggbench.runs.progress import Finished, Progress, Started
from ggbench.runs.reading_log import ReadingLog
from ggbench.runs.recording import Recorder, Recording
from ggbench.runs.run import Run, RunHead
from ggbench.runs.session import RunContext, Session, subject_of


def run_jobs(context: RunContext, jobs: Sequence[Job]) -> Generator[Progress]:
    """Run jobs one after another; a failed one becomes a run with the reason, and the others continue.

    Once `context.cancel` is set, the running job ends with its results so far, and no other starts.
    """
    for index, job in enumerate(jobs):
        if context.cancel.is_set():
            return
        yield from run_job(context, job, index, len(jobs))


def run_job(context: RunContext, job: Job, index: int = 0, n_jobs: int = 1) -> Generator[Progress]:
    """Run one job, the `index`-th of `n_jobs`; ends in `Finished`, unless it was cancelled before it started."""
    target, experiment = job.target, job.experiment
    given, job = job, replace(job, setup=job.setup.with_threads(context.threads))
    yield Started(experiment.kind, target.model, target.quant, index, n_jobs)
    head = RunHead(
        kind=experiment.kind,
        subject=subject_of(target, None, job.setup),
        setup=job.setup,
        settings=job.settings,
        command=experiment.command(job if experiment.measures_speed else given, context.given_bandwidth),
    )
    error: GgbenchError | None = None
    with ReadingLog(context.read_machine, context.reading_interval_s, context.show_reading) as readings:
        recorder = Recorder(head, context.store, readings)
        session = Session(context, recorder, target, job.setup, job.base, job.draft)
        conclusion: Conclusion
        try:
            conclusion = yield from experiment.measure(session)
            error = conclusion.cause if isinstance(conclusion, Ending) else None
        except CancelledError:
            conclusion = Concluded(Outcome.CANCELLED, "stopped before the end")
            if not recorder.has_begun:
                return
        except GgbenchError as caught:
            error = caught
            outcome = Outcome.OUT_OF_MEMORY if isinstance(caught, DoesNotFit) else Outcome.FAILED
            conclusion = Concluded(outcome, caught.message)
        finally:
            session.close()
    recorder.keep_readings()
    run = run_of(experiment, recorder.recording, conclusion)
    recorder.finish(run)
    run = replace(run, run_id=recorder.run_id)
    yield Finished(run, error, recorder.store_error)


def run_of(experiment: Experiment, recording: Recording, conclusion: Conclusion) -> Run:
    """Return the run of a recording: when it ends, or read from the store after a kill."""
    head = recording.head
    gpu_use = recording.gpu_use
    if head.environment is not None:
        changes = tuple(filter(None, (throttled(gpu_use), *recording.machine_changes)))
        environment = replace(head.environment, changes=changes, others_share=recording.others_share)
        head = replace(head, environment=environment)
    result = experiment.reduce(recording)
    memory = experiment.memory(recording, result)
    if gpu_use is not None and head.setup.memory_limit_bytes is not None:
        gpu_use = replace(gpu_use, worker_bytes=None)  # the worker also has the limit's ballast
    reason = conclusion.reason
    if conclusion.outcome is Outcome.OUT_OF_MEMORY and gpu_use is not None and gpu_use.other_processes:
        reason = f"{reason}; GPU memory is used by {name_processes(gpu_use.other_processes)}"
    if memory.other_bytes is None:
        memory = replace(memory, other_bytes=_other_bytes(memory, gpu_use))
    return Run(
        head=head, outcome=conclusion.outcome, reason=reason, memory=memory, gpu_use=gpu_use, result=result
    )


def _other_bytes(memory: Memory, gpu_use: GpuUse | None) -> int | None:
    """Return the worker's bytes outside all buffers: resident ones or, with weights on GPUs, those there.

    Weights read on their way to a GPU stay resident outside any buffer.
    """
    buffers: tuple[DeviceBuffers, ...] = (*memory.buffers, *memory.draft_buffers)
    peak_bytes = memory.peak_bytes
    if memory.weights_on_gpu:
        buffers = tuple(each for each in buffers if not each.is_host)
        peak_bytes = None if gpu_use is None else gpu_use.worker_bytes
    if peak_bytes is None:
        return None
    unexplained = peak_bytes - sum(each.total_bytes for each in buffers)
    return unexplained if unexplained >= 0 else None
