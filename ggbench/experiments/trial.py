"""One trial after another: load a quant, read prompts, decode, and end in a row, whatever becomes of it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace

from ggbench.catalog.selector import Target, materialize
from ggbench.engine import protocol
from ggbench.engine.endings import Completed, Ending
from ggbench.engine.process import Engine
from ggbench.errors import GgbenchError
from ggbench.experiments.observations import Observations
from ggbench.experiments.progress import (
    FilePrepared,
    ModelLoading,
    ModelReady,
    Progress,
    PromptRead,
    TokensDecoded,
    TrialFinished,
    TrialStarted,
)
from ggbench.experiments.reading_log import ReadingLog
from ggbench.experiments.rig import Rig
from ggbench.experiments.row import limit_of, make_row, make_run_start, row_without_file
from ggbench.experiments.settings import TrialSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.memory import peak_rss_bytes

_PREFILL_REPEAT = 3


def run_trials(rig: Rig, targets: tuple[Target, ...], settings: TrialSettings) -> Generator[Progress]:
    """Measure one target after another; one that cannot be measured is a row with its reason, and the rest goes on.

    Once `rig.cancel` is set the running trial ends with the row of what it has, and no other starts.
    """
    settings = replace(settings, config=replace(settings.config, threads=settings.config.threads or rig.threads))
    for index, target in enumerate(targets):
        if rig.cancel.is_set():
            return
        yield TrialStarted(target.model, target.quant, index, len(targets))
        try:
            file = yield from prepare(target, rig.cancel)
        except CancelledError:
            return
        except GgbenchError as error:
            yield TrialFinished(row_without_file(target, settings, error), error)
            continue
        yield from _run_trial(rig, target, file, settings)


def _run_trial(rig: Rig, target: Target, file: ModelFile, settings: TrialSettings) -> Iterator[Progress]:
    command = settings.command_for(target, rig.given_bandwidth)
    with ReadingLog(rig.read_machine, rig.reading_interval_s) as readings:
        observations = Observations(rig.store, readings)
        engine = rig.launch(rig.cancel)
        try:
            ending = yield from _measure(rig, engine, target, file, settings, observations, command)
            pid = observations.worker_pid
            observations.peak_bytes = None if pid is None else peak_rss_bytes(pid)
        finally:
            engine.close()
            observations.samples.flush()
    row = make_row(target, file, settings, observations, ending, rig.bandwidth_of, command)
    row = observations.finish(row)
    yield TrialFinished(row, store_error=observations.store_error)


def _measure(
    rig: Rig,
    engine: Engine,
    target: Target,
    file: ModelFile,
    settings: TrialSettings,
    observations: Observations,
    command: str,
) -> Generator[Progress, None, Ending]:
    for request in _requests(file, settings):
        for item in engine.call(request):
            if isinstance(item, protocol.Ready):
                observations.note_worker(item, rig.describe_environment)
            elif not isinstance(item, Ending):
                observations.note(item)
            # A CUDA build logs before it is ready; a worker that dies at its start never is.
            if not observations.has_begun and (observations.environment or isinstance(item, Ending)):
                observations.begin(
                    make_run_start(settings.kind, target, file, settings.config, observations.environment, command)
                )
            if isinstance(item, Completed):
                break
            if isinstance(item, Ending):
                return item
            yield from _progress(rig, item, file, settings, observations)
        if isinstance(request, protocol.Decode) and request.phase == "decode":
            observations.samples.end_repetition()
    return Completed()


def _requests(file: ModelFile, settings: TrialSettings) -> Iterator[protocol.Request]:
    config = settings.config
    assert config.threads is not None
    yield protocol.LoadModel(
        path=str(file.paths[0]),
        n_gpu_layers=config.n_gpu_layers,
        main_gpu=config.main_gpu,
        tensor_split=config.tensor_split,
        memory_limit_bytes=config.memory_limit_bytes,
    )
    yield protocol.MakeContext(
        n_ctx=settings.n_ctx,
        n_batch=config.n_batch,
        n_ubatch=config.n_ubatch,
        type_k=config.type_k,
        type_v=config.type_v,
        flash_attn=config.flash_attn,
        threads=config.threads,
    )
    for n_prompt in settings.prefill_lengths:
        yield protocol.Prefill(n_prompt, repeat=settings.repeat, warmup=1)
    if settings.n_gen:
        yield protocol.Prefill(settings.n_prompt, repeat=_PREFILL_REPEAT, warmup=1)
        yield protocol.Decode(settings.n_prompt, settings.n_warmup, phase="warmup")
        for _ in range(settings.repeat):
            yield protocol.Decode(settings.n_prompt, settings.n_gen)


def _progress(
    rig: Rig, event: protocol.Event, file: ModelFile, settings: TrialSettings, observations: Observations
) -> Iterator[Progress]:
    match event:
        case protocol.Loading(share):
            yield ModelLoading(file, share)
        case protocol.ContextMade():
            allocations = observations.allocations
            limit = limit_of(file, rig.bandwidth_of(allocations, observations.environment), settings.config)
            yield ModelReady(event.n_ctx, allocations.buffers, observations.run_id, limit)
        case protocol.Prefilled(n_prompt, prefill_ns):
            yield PromptRead(n_prompt, prefill_ns)
        case protocol.Decoded(phase="decode"):
            n_done, n_total = len(observations.samples.step_ns), settings.n_gen * settings.repeat
            yield TokensDecoded(event.first_position, tuple(event.step_ns), n_done, n_total, event.text)


def prepare(target: Target, cancel: threading.Event) -> Generator[FilePrepared, None, ModelFile]:
    """The target's file, made or downloaded first; in a thread, so that its progress can be told."""
    updates: queue.SimpleQueue[FilePrepared] = queue.SimpleQueue()
    is_download = target.download_bytes > 0
    abandoned = threading.Event()

    def on_progress(done_bytes: int, total_bytes: int) -> None:
        if cancel.is_set() or abandoned.is_set():
            raise CancelledError
        updates.put(FilePrepared(done_bytes, total_bytes, is_download))

    with ThreadPoolExecutor(max_workers=1) as pool:
        file = pool.submit(materialize, target, on_progress)
        try:
            while not file.done():
                with contextlib.suppress(queue.Empty):
                    yield updates.get(timeout=0.05)
        finally:
            abandoned.set()
    return file.result()
