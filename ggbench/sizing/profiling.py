"""Take a device profile: time small twins in each memory of this machine, and work out what each part of a step costs.

Shallow twins give a step and a layer, thin ones with wide attention the KV cache, one of each tensor type its weights,
larger than the CPU's cache, and a narrow one what each matrix costs besides. What the others cost is subtracted from
each.
"""

from __future__ import annotations

import contextlib
import datetime
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

import ggbench
from ggbench.engines.contract import DecodeAtDepth, Engine, Source, launch_engine
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.build import LlamaBuild, describe_llama_build
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import EngineFailed
from ggbench.gguf_file.ggml_types import tensor_bytes, type_by_name
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import remove_left_twins, twin_folder, twin_of
from ggbench.gguf_file.twin_writer import require_room, write_twin
from ggbench.machine.bandwidth import cached_bandwidth
from ggbench.machine.gpus import visible_gpus
from ggbench.machine.host import Cpu, default_threads, describe_cpu, describe_ram
from ggbench.machine.profile import MachineProfile, ProfiledDevice
from ggbench.paths import forecasts_dir
from ggbench.sizing.budget import devices_here
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.sizing.work import works_by_place
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.profile_speed import Attention, Rates, Timed, Work, batch_ms, cache_key
from ggbench.units import GIB, MIB

TYPES = (
    "f16", "q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k", "q5_0", "q5_1", "q4_0", "q4_1", "iq4_nl", "iq4_xs", "mxfp4",
)  # fmt: skip
"""Types of weights that are timed; one that llama.cpp cannot run here is left out."""
CACHES = (("f16", True), ("q8_0", True), ("q4_0", True), ("f16", False))
"""Types of K and V that are timed, and whether with flash attention."""
SMALL_BATCHES = (2, 4, 8)
_ROUNDS, _MOST_ROUNDS, _N_GEN = 3, 8, 4
_AGREE = 0.05
"""Rounds go on until the two fastest are as close as this share."""
_BATCH_ROUNDS = 2
"""Rounds in which the large batch is timed too."""
_N_DEPTH = 4097
_N_BATCH = 512
"""Tokens of a prompt's batch: llama.cpp's n_ubatch."""
_N_ATTENTION = 128
"""Tokens of the batch whose attention stands for that of a prompt's, in proportion: a whole one takes minutes."""
_CPU_BYTES, _GPU_BYTES = 128 * MIB, 768 * MIB
_CACHE_FACTOR = 2
"""A twin's weights are at least this multiple of the CPU's last-level cache."""
_COMMON_TYPE = "q4_k"
"""The type of the twins of experts and of narrow matrices."""
_HEADS = ((64, 16, 2), (64, 16, 16), (128, 16, 2), (128, 16, 4), (128, 16, 16), (256, 8, 1), (256, 8, 4))
"""Width of a head, query heads and KV heads of the shapes whose attention is timed."""
_NARROW = {"n_embd": 512, "n_head": 8, "n_head_kv": 8, "n_ff": 1536}
_BASE = Hyperparameters(
    architecture="llama", n_layer=4, n_embd=64, n_head=2, n_head_kv=2, n_ff=64, n_vocab=256, n_ctx_train=32768
)  # fmt: skip

OnStep = Callable[[str], None]


class _Sample(msgspec.Struct, frozen=True):
    """Timings of one twin at one depth: by tokens of a batch, the median step of each round [ms]."""

    rounds: Mapping[int, Sequence[float]]

    def timed(self, n_batch: int) -> Timed:
        """Return the fastest round: other programs only slow a round down."""
        each = self.rounds[n_batch]
        return Timed(min(each), statistics.median(each) / min(each) - 1)


class _Place(msgspec.Struct, frozen=True):
    """A memory and how to load twins there."""

    setup: LlamaConfig
    wide: Hyperparameters
    """The shape of twins whose weights are timed."""
    least_bytes: int


def take_profile(on_step: OnStep, launch: Callable[[LlamaConfig], Engine] = launch_engine) -> MachineProfile:
    """Return the profile of this machine; takes a minute or two for each memory.

    Raises DoesNotFit if the disk lacks room for a twin, and EngineFailed.
    """
    cpu, ram, threads, build = describe_cpu(), describe_ram(), default_threads(), describe_llama_build()
    devices = devices_here()
    bandwidth = cached_bandwidth(threads)
    cpu_setup = LlamaConfig(n_gpu_layers=0, threads=threads)
    host = _Place(
        cpu_setup,
        replace(_BASE, n_embd=2048, n_head=16, n_head_kv=16, n_ff=8192),
        max(_CPU_BYTES, _CACHE_FACTOR * (cpu.last_level_cache_bytes or 0)),
    )
    folder = forecasts_dir()
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_twins(folder)
    engine = launch(cpu_setup)
    try:
        with twin_folder(folder) as twins:
            timer = _Timer(engine, twins, on_step)
            gpus, seen = [], set[str]()
            for number, device in enumerate(devices):
                setup = LlamaConfig(threads=threads, main_gpu=number, split_mode="none")
                wide = replace(_BASE, n_embd=4096, n_head=32, n_head_kv=32, n_ff=14336)
                place = _Place(setup, wide, _GPU_BYTES)
                rates = {} if device.name in seen else timer.rates(place, device.name)
                seen.add(device.name)
                gpus.append(_gpu(device, number, rates))
            rates = timer.rates(host, cpu.name)
            drift = timer.drift()
    finally:
        engine.close()
    profile = MachineProfile(
        taken=datetime.date.today().isoformat(),
        ggbench=ggbench.__version__,
        llama_cpp=" ".join(filter(None, (build.llama_cpp, build.commit))),
        build_flags=build.build_flags,
        features=_features(build),
        n_cores=cpu.n_cores,
        threads=threads,
        cache_bytes=cpu.last_level_cache_bytes,
        drift=drift,
        devices=tuple(gpus),
        host=_host(cpu, ram.total_bytes, bandwidth, rates),
    )
    return msgspec.convert(_rounded(msgspec.to_builtins(profile, str_keys=True)), MachineProfile, str_keys=True)


def _rounded(value: object) -> object:
    """Return JSON with all fractions at four digits, about what is known."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _features(build: LlamaBuild) -> str:
    return ", ".join(f"{backend}: {' '.join(names)}" for backend, names in build.features.items())


def _host(cpu: Cpu, memory_bytes: int, probed: Bandwidth, rates: dict[int, Rates]) -> ProfiledDevice:
    """Return main memory with its bandwidth: as probed, or as its weights were read if that was faster."""
    read = Bandwidth(GIB / min(each.ms for each in rates[1].gib_ms.values()) * 1e3, "the fastest of its weights")
    bandwidth = max(probed, read, key=lambda each: each.bytes_per_s)
    return ProfiledDevice(
        name=cpu.name,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=bandwidth.bytes_per_s,
        bandwidth_source=bandwidth.source,
        rates=rates,
    )


def _gpu(device: DeviceMemory, number: int, rates: dict[int, Rates]) -> ProfiledDevice:
    nvidia = {gpu.name: gpu for gpu in visible_gpus()}.get(device.name)
    total = nvidia.total_bytes if nvidia is not None else None
    return ProfiledDevice(
        name=device.name,
        backend=device.backend or device.device.rstrip("0123456789"),
        driver=(nvidia.driver if nvidia is not None else None) or "",
        memory_bytes=total or device.free_bytes,
        bandwidth_bytes_per_s=None if device.bandwidth is None else device.bandwidth.bytes_per_s,
        bandwidth_source="" if device.bandwidth is None else device.bandwidth.source,
        shares_memory=device.device.startswith(("MTL", "Metal")),
        rates=rates,
    )


class _Timer:
    """Writes, loads and times twins, one after the other."""

    def __init__(self, engine: Engine, folder: Path, on_step: OnStep) -> None:
        self._engine, self._folder, self._on_step = engine, folder, on_step
        self._n_twins = 0
        self._first: tuple[ModelFile, LlamaConfig, float] | None = None

    def rates(self, place: _Place, name: str) -> dict[int, Rates]:
        """Return what a batch of each size costs at this place."""
        batches = (1, *SMALL_BATCHES, _N_BATCH)
        rates = dict.fromkeys(batches, Rates(0.0, 0.0, 0.0, 0.0, 1.0, {}, {}))

        def timed(what: str, file: ModelFile, setup: LlamaConfig = place.setup) -> dict[int, Timed]:
            self._on_step(f"{name}: {what}")
            ((_, sample),) = self._samples(file, setup, (1,), batches)
            return {n: sample.timed(n) for n in batches}

        for cache, flash in CACHES:
            self._on_step(f"{name}: attention to {cache}{'' if flash else ' without flash attention'}")
            for n, attention in self._attention(place, cache, flash=flash).items():
                known = rates[n].attention | {cache_key(cache, cache, flash_attn=flash): attention}
                rates[n] = replace(rates[n], attention=known)
        for n in SMALL_BATCHES:
            rates[n] = replace(rates[n], attention={})
        thin = [_pure(replace(_BASE, n_layer=n_layer), "q8_0") for n_layer in (4, 32)]
        shallow, deep = (timed("layers", file) for file in thin)
        for n in batches:
            few_ms, many_ms = (
                each[n].ms - _ms(rates[n], _without_weights(file), n)
                for each, file in zip((shallow, deep), thin, strict=True)
            )
            layer_ms = max(0.0, many_ms - few_ms) / 28
            rates[n] = replace(rates[n], layer_ms=layer_ms, step_ms=max(0.0, few_ms - 4 * layer_ms))
        found: dict[str, tuple[ModelFile, dict[int, Timed]]] = {}
        for number, type_name in enumerate(TYPES):
            file = _pure(_of_bytes(place.wide, type_name, place.least_bytes), type_name)
            try:
                found[type_name] = file, timed(f"{type_name}, {number + 1} of {len(TYPES)} types", file)
            except EngineFailed:
                if type_name == _COMMON_TYPE:
                    raise
        narrow = _pure(_of_bytes(replace(place.wide, **_NARROW), _COMMON_TYPE, place.least_bytes), _COMMON_TYPE)
        narrow_timed = timed("narrow matrices", narrow)
        for n in batches:
            matrix_ms = _matrix_ms(
                *(
                    (_work(file), each[n].ms - _ms(rates[n], _without_weights(file), n))
                    for file, each in (found[_COMMON_TYPE], (narrow, narrow_timed))
                )
            )
            rates[n] = replace(rates[n], matrix_ms=matrix_ms)
        for type_name, (file, each) in found.items():
            gib = _work(file).dense_bytes[type_name] / GIB
            for n in batches:
                own = each[n].ms - _ms(rates[n], _without_weights(file), n)
                timing = Timed(max(own, 0.05 * each[n].ms) / gib, each[n].spread)
                rates[n] = replace(rates[n], gib_ms=rates[n].gib_ms | {type_name: timing})
        for n, (layer_ms, share) in self._experts(place, name, rates, timed).items():
            rates[n] = replace(rates[n], expert_layer_ms=layer_ms, expert_share=share)
        return rates

    def _attention(self, place: _Place, cache: str, *, flash: bool) -> dict[int, tuple[Attention, ...]]:
        """Return the timed shapes of attention for one token and for a prompt's batch."""
        setup = replace(place.setup, type_k=cache, type_v=cache, flash_attn="on" if flash else "off")
        scales = {1: (1, 1.0), _N_BATCH: (_N_ATTENTION, _N_BATCH / _N_ATTENTION)}
        found: dict[int, tuple[Attention, ...]] = dict.fromkeys(scales, ())
        for head_dim, n_head, n_head_kv in _HEADS:
            shape = replace(_BASE, n_layer=4, head_dim=head_dim, n_head=n_head, n_head_kv=n_head_kv)
            file = _pure(shape, "q8_0")
            (work,) = _work(file, setup).attention
            (_, near), (_, far) = self._samples(file, setup, (1, _N_DEPTH), (1, _N_ATTENTION))
            for n, (timed, scale) in scales.items():
                ns = scale * (far.timed(timed).ms - near.timed(timed).ms) * 1e6 / (_N_DEPTH - 1) / work.n_head
                one = Attention(head_dim, work.n_bytes / work.n_head, max(ns, 1e-6), far.timed(timed).spread)
                found[n] = (*found[n], one)
        return found

    def _experts(
        self,
        place: _Place,
        name: str,
        rates: Mapping[int, Rates],
        timed: Callable[[str, ModelFile], dict[int, Timed]],
    ) -> dict[int, tuple[float, float]]:
        """Return what a layer with experts costs in addition, and the share by which a byte of theirs costs more."""
        small = replace(_BASE, architecture="qwen3moe", n_layer=16, n_expert=32, n_expert_used=4, n_ff_expert=64)
        wide = replace(place.wide, architecture="qwen3moe", n_expert=8, n_expert_used=4, n_ff_expert=1024, n_layer=1)
        wide = _of_bytes(wide, _COMMON_TYPE, 2 * place.least_bytes)
        routed, thin = timed("experts", _pure(wide, _COMMON_TYPE)), timed("experts", _pure(small, "q8_0"))
        found = {}
        for n, rate in rates.items():
            thin_ms = max(0.0, thin[n].ms - _ms(rate, _work(_pure(small, "q8_0")), n)) / small.n_layer
            work = _work(_pure(wide, _COMMON_TYPE))
            bare = _ms(rate, replace(work, expert_bytes={}), n) + thin_ms * wide.n_layer
            whole = _ms(rate, work, n) + thin_ms * wide.n_layer
            share = (routed[n].ms - bare) / (whole - bare)
            found[n] = thin_ms, max(share, 0.05)
        return found

    def drift(self) -> float:
        """Time the first twin once more; return by what share a step is slower than it was then."""
        assert self._first is not None
        file, setup, first_ms = self._first
        ((_, sample),) = self._samples(file, setup, (1,), (1,))
        return max(0.0, sample.timed(1).ms / first_ms - 1)

    def _samples(
        self, file: ModelFile, setup: LlamaConfig, depths: Sequence[int], batches: Sequence[int]
    ) -> list[tuple[int, _Sample]]:
        """Return the timings of a twin at each depth. Raises EngineFailed if llama.cpp cannot run it."""
        self._n_twins += 1
        path = self._folder / f"profile-{self._n_twins}.gguf"  # an engine that has this path open would not load it
        require_room(self._folder, file.file_bytes, hint="free some space, set XDG_CACHE_HOME to a folder with room")
        write_twin(file, path, is_kept=False)
        try:
            n_ctx = max(depths) + max(batches) + _N_GEN + 2
            _completed(self._engine.open(Source(path), replace(setup, n_ctx=n_ctx)))
            found = []
            for depth in depths:
                rounds: dict[int, list[float]] = {n: [] for n in batches}
                self._steps(depth, 2, min(batches[-1], 8))  # memory costs more at its first use
                for number in range(_MOST_ROUNDS):
                    timed = batches[1:] if number < _BATCH_ROUNDS else batches[1:-1] if number < _ROUNDS else ()
                    for n in timed or (0,):
                        step_ms, batch_ms_ = self._steps(depth, _N_GEN, n)
                        rounds[1].append(step_ms)
                        if n:
                            rounds[n].append(batch_ms_)
                    fastest = sorted(rounds[1])
                    if number + 1 >= _ROUNDS and fastest[1] <= (1 + _AGREE) * fastest[0]:
                        break
                found.append((depth, _Sample(rounds)))
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
        if self._first is None:
            self._first = file, setup, found[0][1].timed(1).ms
        return found

    def _steps(self, depth: int, n_gen: int, n_batch: int) -> tuple[float, float]:
        """Return the median step and the batch [ms], 0 without one."""
        events = _completed(self._engine.run(DecodeAtDepth(depth, n_gen, n_batch)))
        step_ns = [ns for event in events if isinstance(event, Steps) for ns in event.step_ns]
        batch_ns = [event.elapsed_ns for event in events if isinstance(event, PromptRead)]
        return statistics.median(step_ns) / 1e6, sum(batch_ns) / 1e6


def _ms(rates: Rates, work: Work, n_batch: int) -> float:
    """Return the time of a batch from an empty context; attention within it counts if it was timed."""
    cache = cache_key("f16", "f16", flash_attn=True)
    found = batch_ms([(rates, work if cache in rates.attention else replace(work, attention=()))], n_batch / 2, cache)
    assert found is not None
    return found.value


def _matrix_ms(wide: tuple[Work, float], narrow: tuple[Work, float]) -> float:
    """Return what a matrix costs besides its bytes, by the times [ms] of the weights of two twins."""
    (few, few_ms), (many, many_ms) = wide, narrow
    share = many.dense_bytes[_COMMON_TYPE] / few.dense_bytes[_COMMON_TYPE]
    return max(0.0, (many_ms - share * few_ms) / (many.n_matrix - share * few.n_matrix))


def _without_weights(file: ModelFile) -> Work:
    return replace(_work(file), dense_bytes={}, output_bytes={})


def _work(file: ModelFile, setup: LlamaConfig = LlamaConfig()) -> Work:  # noqa: B008 - frozen
    (work,) = works_by_place(file, Placement(file, setup, on_gpu=False), setup).values()
    return work


def _of_bytes(shape: Hyperparameters, type_name: str, least_bytes: int) -> Hyperparameters:
    """Return the shape with as many layers as take this many bytes."""
    one, two = (_pure(replace(shape, n_layer=n), type_name).weight_bytes or 0 for n in (1, 2))
    return replace(shape, n_layer=max(1, -(-least_bytes // (two - one))))


def _pure(shape: Hyperparameters, type_name: str) -> ModelFile:
    """Return a twin of this shape, all matrices of whose layers are of one type."""
    model, name = build_model(shape, f"profile {type_name}"), type_by_name(type_name).name
    tensors = tuple(
        replace(tensor, type_name=name, n_bytes=tensor_bytes(name, tensor.shape))
        if tensor.type_name == "f16" and tensor.name.startswith("blk.")
        else tensor
        for tensor in model.tensors
    )
    return twin_of(replace(model, tensors=tensors), "profile")


def _completed(events: Iterator[object]) -> list[object]:
    found = list(events)
    ending = found[-1]
    if isinstance(ending, Ending) and not isinstance(ending, Completed):
        raise EngineFailed(ending.reason, "see: ggbench doctor")
    return found
