"""From what a trial saw to the row that a person reads."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ggbench.catalog.selector import Target
from ggbench.engine.endings import Crashed, Ending
from ggbench.engine.logs import Allocations
from ggbench.errors import GgbenchError, Unsupported
from ggbench.experiments.observations import Observations
from ggbench.experiments.settings import TrialSettings
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import find_cuda_gpu
from ggbench.machine.readings import name_processes
from ggbench.machine_records import GpuUse
from ggbench.records import Bandwidth, DecodeLimit, DeviceBuffers, Environment, LoadConfig, Outcome, PrefillSpeed, Row
from ggbench.stats.gpu_use import summarize_gpus, throttled
from ggbench.stats.linefit import fit_line
from ggbench.stats.steadiness import unsteady
from ggbench.stats.summary import summarize
from ggbench.store.runs import RunKind, RunStart
from ggbench.theory.roofline import decode_limit

BandwidthOf = Callable[[Allocations, Environment | None], Bandwidth | None]


def make_run_start(
    kind: RunKind, target: Target, file: ModelFile, config: LoadConfig, environment: Environment | None, command: str
) -> RunStart:
    """What is known of a trial or a search before anything is measured."""
    return RunStart(
        kind=kind,
        model=target.model,
        quant=target.quant,
        file=str(file.paths[0].absolute()) if file.paths else "",
        provenance=target.provenance,
        file_bytes=file.file_bytes,
        header_sha256=file.header_sha256,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token(file, config),
        command=command,
        config=config,
        environment=environment,
    )


def make_row(
    target: Target,
    file: ModelFile,
    settings: TrialSettings,
    observations: Observations,
    ending: Ending,
    bandwidth_of: BandwidthOf,
    command: str,
) -> Row:
    """The row of a trial that ended, with everything that was measured until then."""
    seen, samples, config = observations, observations.samples, settings.config
    allocations = seen.allocations
    bandwidth = bandwidth_of(allocations, seen.environment)
    gpu_use = _gpu_use(seen, allocations)
    if gpu_use is not None and config.memory_limit_bytes is not None:
        gpu_use = replace(gpu_use, worker_bytes=None)  # the worker holds the ballast of the limit too
    prompt_ns = seen.prefill_ns.get(settings.n_prompt) if settings.n_gen else None
    return Row(
        model=target.model,
        quant=target.quant,
        file=str(file.paths[0].absolute()),
        provenance=target.provenance,
        file_bytes=file.file_bytes,
        n_params=file.n_params,
        bpw=file.bpw,
        weight_bytes=file.weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token(file, config),
        outcome=ending.outcome,
        reason=_explain(ending, allocations.buffers, gpu_use),
        buffers=allocations.buffers,
        kv_bytes=allocations.total("kv_bytes") if seen.n_ctx else None,
        compute_bytes=allocations.total("compute_bytes") if seen.n_ctx else None,
        peak_bytes=seen.peak_bytes,
        other_bytes=_other_bytes(seen.peak_bytes, gpu_use, allocations.buffers),
        n_ctx=seen.n_ctx,
        n_batch=seen.n_batch,
        n_ubatch=seen.n_ubatch,
        n_prompt=settings.n_prompt if settings.n_gen else None,
        n_gen=len(samples.step_ns),
        prefill_ms=statistics.median(prompt_ns) / 1e6 if prompt_ns else None,
        prefills=prefill_speeds({n: seen.prefill_ns[n] for n in settings.prefill_lengths if n in seen.prefill_ns}),
        fit=fit_line(samples.position, samples.step_ns),
        latency=summarize(samples.step_ns, samples.sample_ns),
        limit=limit_of(file, bandwidth, config),
        unsteady="; ".join(filter(None, (unsteady(samples.position, samples.step_ns), throttled(gpu_use)))),
        gpu_use=gpu_use,
        flash_attn=allocations.flash_attn,
        config=config,
        header_sha256=file.header_sha256,
        command=command,
        environment=seen.environment,
    )


def row_without_file(target: Target, settings: TrialSettings, error: GgbenchError) -> Row:
    """The row of a trial that never began, because its file could not be had."""
    return Row(
        model=target.model,
        quant=target.quant,
        file=str(target.path or ""),
        provenance=target.provenance,
        file_bytes=None,
        n_params=None,
        bpw=None,
        weight_bytes=None,
        kv_bytes_per_token=None,
        outcome=Outcome.FAILED,
        reason=error.message,
        config=settings.config,
        command=settings.command_for(target),
    )


def kv_bytes_per_token(file: ModelFile, config: LoadConfig) -> int | None:
    """Of both caches as they are typed; None where the KV is not counted from the header."""
    try:
        return file.kv_bytes_per_token(config.type_k, config.type_v)
    except Unsupported:
        return None


def limit_of(file: ModelFile, bandwidth: Bandwidth | None, config: LoadConfig) -> DecodeLimit | None:
    """The machine's limit for a file; None where the bandwidth, or what a token reads, is unknown."""
    if bandwidth is None:
        return None
    try:
        return decode_limit(file, bandwidth, config.type_k, config.type_v)
    except Unsupported:
        return None


def _other_bytes(peak_bytes: int | None, gpu_use: GpuUse | None, buffers: tuple[DeviceBuffers, ...]) -> int | None:
    """Of what the worker had resident; where weights are on GPUs, of what it held of these.

    What was read on its way to a GPU stays resident and belongs to no buffer.
    """
    on_gpu = any(each.weight_bytes and not each.is_host for each in buffers)
    if on_gpu:
        buffers = tuple(each for each in buffers if not each.is_host)
        peak_bytes = None if gpu_use is None else gpu_use.worker_bytes
    if peak_bytes is None:
        return None
    other_bytes = peak_bytes - sum(b.weight_bytes + b.kv_bytes + b.compute_bytes + b.output_bytes for b in buffers)
    return other_bytes if other_bytes >= 0 else None


def _gpu_use(seen: Observations, allocations: Allocations) -> GpuUse | None:
    """What the GPUs that hold buffers did; None where one of them cannot be told among NVML's."""
    gpus = seen.environment.gpus if seen.environment else ()
    found = [find_cuda_gpu(gpus, device, device_id) for device, device_id in allocations.gpu_devices]
    indices = [gpu.index for gpu in found if gpu is not None]
    if len(indices) < len(found):
        return None
    spans = seen.decode_spans or seen.prefill_spans
    return summarize_gpus(seen.readings.readings, indices, spans, len(seen.samples.step_ns), seen.worker_pid)


def prefill_speeds(prefill_ns: Mapping[int, Sequence[int]]) -> tuple[PrefillSpeed, ...]:
    """From the timings of each length to its median, by rising length."""
    medians = {n_prompt: statistics.median(timings) for n_prompt, timings in sorted(prefill_ns.items())}
    return tuple(
        PrefillSpeed(n_prompt, median_ns / 1e6, n_prompt * 1e9 / median_ns, len(prefill_ns[n_prompt]))
        for n_prompt, median_ns in medians.items()
    )


def _explain(ending: Ending, buffers: tuple[DeviceBuffers, ...], gpu_use: GpuUse | None) -> str:
    """The ending's reason, with what is known of a crash that looks like it, and who else holds a GPU's memory."""
    if ending.outcome is Outcome.OUT_OF_MEMORY and gpu_use is not None and gpu_use.other_processes:
        return f"{ending.reason}; GPU memory is held by {name_processes(gpu_use.other_processes)}"
    if isinstance(ending, Crashed) and ending.returncode == -signal.SIGSEGV and any(b.device == "AMX" for b in buffers):
        # llama.cpp issue 20824: on some machines the first batch after repacking for AMX faults.
        return f"{ending.reason} (llama.cpp's AMX code is known for this; ./scripts/ggbench builds it without)"
    return ending.reason
