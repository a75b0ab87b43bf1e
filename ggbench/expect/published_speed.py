"""Estimate speed on GPUs and CPUs that nobody measured here from the published rows of llama-bench."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.expect.cost_model import (
    Cost,
    DeviceKind,
    DeviceRead,
    HostRead,
    ModelKind,
    SpeedModel,
    decode_costs,
    prompt_costs,
    quant_class,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import default_threads
from ggbench.machine.known_devices import KnownDevice, recognize_device
from ggbench.models.published import data_text, reads_data
from ggbench.models.published.benches import ROWS_FILE, BenchedRow, parse_benches
from ggbench.record import Record
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.sizing.speed_limits import speed_positions
from ggbench.sizing.theory.offload import HOST
from ggbench.sizing.theory.weights import file_weights
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import SpeedCurve, inverse
from ggbench.text import in_words
from ggbench.units import counted

_PROMPTS = (128, 512, 2048, 8192, 32768)
_COPIED_BYTES_PER_S = Estimate(15e9, 5e9, 45e9)
"""Rate at which a prompt's batch copies weights from main memory to a GPU, over PCIe.

By how much each further layer of experts in main memory slows prompts in `llama-bench.csv`: 10 GB/s with a Quadro RTX
5000, 19 with a Radeon AI Pro R9700 by ROCm and 10 by Vulkan, 23 to 33 with an RTX 3090. The geometric mean, and
a 95 % prediction interval for one more machine.
"""
ASSUMED_THREADS = 8
"""Threads of a CPU of which nothing is known: the cores of a common desktop."""
_MEETING_MS = Estimate(0.13, 0.046, 0.365)
"""Time for each layer in which devices wait for each other with `-sm tensor`.

A step with it, less the largest part of a step of one card or by layers, over the layers: RTX 3060 and 4070 Super
0.091 (Qwen3.5 27B, https://ai-maestro.online/dual-gpu-llama-cpp-speedup/), two RTX 3090 Ti 0.092 (Qwen3.6 27B,
https://aicrier.com/post/0w4ciamqba2vdcc3nhp2), two RX 7900 XTX 0.121 with ROCm (Qwen3.8 27B, llama.cpp issue 28863)
and 0.149 with Vulkan (Qwen3.5 27B, PR 25051), four RTX 4090 0.122 (gpt-oss 120B) and 0.25 (Llama 70B, PR 19378). The
geometric mean, and a 95 % prediction interval for one more machine.
"""
_APPLE_CORE_TFLOPS = 2.6 / 8
"""Rate of a core of Apple's M1, the reference for later generations: their clocks and matrix units are among what
the rows of a generation say, as Apple does not state rates of M3 and later."""
_METAL = "MTL"
"""ggml's name of it."""


class FittedSpeeds(Record):
    """What `scripts/fit_speeds` found."""

    decode: SpeedModel
    prompt: SpeedModel
    rows: dict[str, tuple[int, ...]]
    """Indices of the published rows that terms of decoding were fitted to, by term."""


@reads_data
def fitted_speeds() -> FittedSpeeds:
    return msgspec.json.decode(data_text("device-speed.json", "ggbench.expect"), type=FittedSpeeds)


def _behind(placement: Placement, kinds: Iterable[DeviceKind], *, in_host: bool) -> str:
    """Return how many rows an estimate leans on, by whose they are, and the nearest of the same device."""
    rows, counts, nearest = fitted_speeds().rows, dict[str, int](), ""
    for kind in kinds:
        own = rows.get(f"read:device={kind.term}", ())
        relatives = rows.get(f"read:generation={kind.generation}/{kind.backend}", ())
        others = f"other {kind.generation} with {kind.backend}"
        counts |= {kind.name: len(own), others: len(relatives) - len(own)}
        if own:
            nearest = f"; nearest: {_nearest_row(placement.file, own)}"
    if in_host:
        term, whose = ("crossing", "experts in main memory") if placement.n_crossed else ("host", "CPUs")
        counts[whose] = len(rows[term])
    known = [f"{counted(n, 'row')} of {whose}" for whose, n in counts.items() if n > 0]
    return f"others' llama-bench: {in_words(known or ['rows of other devices'])}{nearest}"


def _nearest_row(file: ModelFile, numbers: tuple[int, ...]) -> str:
    """Return the row of these that is nearest: by architecture, then size, then depth."""

    def distance(row: BenchedRow) -> tuple[bool, float, int]:
        size = abs(math.log((row.weight_bytes or 1) / (file.file_bytes or 1)))
        return row.model.split()[0] != file.architecture, size, row.n_depth

    row = min(_rows(numbers), key=distance)
    return f"{row.model} {row.quant} {row.test} @ d{row.n_depth}, {row.tok_s:g} tok/s"


@functools.cache
def _rows(numbers: tuple[int, ...]) -> Sequence[BenchedRow]:
    """Return these of the published rows."""
    header, *lines = data_text(ROWS_FILE).splitlines()
    return parse_benches("\n".join([header, *(lines[number] for number in numbers)]))


def published_curve(placement: Placement, *, is_here: bool, n_tokens: float = 1.0) -> SpeedCurve | None:
    """Return the speed that others' rows of these devices, of their relatives and of CPUs let expect.

    A step reads the experts of `n_tokens` that choose them independently. None if a bandwidth is unknown, or the bytes
    read, or if a GPU has no kernel for the cache, which others hardly use.
    """
    if not placement.decodes_cache:
        return None
    # Rows with a quantized cache are too few to say what its kernels gain.
    return _whole_cache_curve(placement.with_cache("f16", "f16"), is_here=is_here, n_tokens=n_tokens)


@functools.lru_cache(maxsize=8)
def _whole_cache_curve(placement: Placement, *, is_here: bool, n_tokens: float) -> SpeedCurve | None:
    try:
        read = {n: placement.read_bytes(n, n_tokens) for n in speed_positions(placement)}
    except Unsupported:
        return None
    places = set().union(*read.values())
    if not places <= set(placement.bandwidths):
        return None
    kinds = {place: device_kind(memory) for place, memory in placement.memories if place in places - {HOST}}
    threads = _n_threads(placement.setup, is_here=is_here)
    step = _Step(placement, kinds, model_kind(placement.file), threads, n_tokens)
    return SpeedCurve(
        "published",
        _behind(placement, kinds.values(), in_host=HOST in places),
        tuple((n, step.time(by_place)) for n, by_place in read.items()),
        _prefills(placement, step.model) if len(kinds) == 1 else (),
    )


def _n_threads(setup: LlamaConfig, *, is_here: bool) -> int:
    """Return the threads of the CPU: as set, llama.cpp's default here, or an assumption for a described machine."""
    return setup.threads or (default_threads() if is_here else ASSUMED_THREADS)


class _Step(Record):
    """What decoding a batch takes, whatever the position."""

    placement: Placement
    kinds: Mapping[int, DeviceKind]
    model: ModelKind
    n_threads: int
    n_tokens: float

    def time(self, read_bytes: Mapping[int, float]) -> Estimate:
        """Return the time [ms] of a step that reads these bytes from each memory."""
        computed = fitted_speeds().decode.predict(self.costs(read_bytes))
        if not self.placement.is_parallel:
            return computed
        return computed.plus(_MEETING_MS, self.placement.n_gpu_layers)

    def costs(self, read_bytes: Mapping[int, float]) -> list[Cost]:
        """Return the costs of a step that reads these bytes from each memory."""
        reads, host = [], None
        for place, n_bytes in read_bytes.items():
            rate = self.placement.bandwidths[place].bytes_per_s
            weights = self.placement.weights_read.get(place)
            weight_bytes = 0.0 if weights is None else weights.read_bytes(self.n_tokens)
            n_layers = self._n_layers(place)
            if place == HOST:
                n_params = 0.0 if weights is None else weights.parameters.active * weight_bytes / self.all_bytes
                host = HostRead(rate, weight_bytes, n_bytes - weight_bytes, n_layers, n_params, self.n_threads)
            else:
                kind = self.kinds[place]
                reads.append(DeviceRead(kind, rate, weight_bytes, n_bytes - weight_bytes, n_layers))
        if self.placement.is_parallel:
            reads = sorted(
                reads, key=lambda each: (each.weight_bytes + each.kv_bytes) / each.bandwidth_bytes_per_s
            )[-1:]
        return decode_costs(
            reads,
            self.model,
            host=host,
            n_crossed=self.placement.n_crossed,
            has_flash_attn=self.placement.setup.flash_attn != "off",
        )

    def _n_layers(self, place: int) -> int:
        """Return the number of layers that a memory's processor computes: of devices that split each, their part."""
        if self.placement.is_parallel and place != HOST:
            return (self.placement.n_gpu_layers - 1) // len(self.kinds)
        return self.placement.layers[:-1].count(place)

    @property
    def all_bytes(self) -> float:
        """Weights read from all memories."""
        return sum(each.read_bytes() for each in self.placement.weights_read.values())


def device_kind(device: DeviceMemory) -> DeviceKind:
    """Return what the speed of a planned GPU depends on: of its own name, or of what its driver calls it."""
    known = recognize_device(device.name, device.free_bytes)
    backend = device.backend or re.sub(r"\d+$", "", device.device)
    backend = "Metal" if backend == _METAL else backend
    if known is None:
        return DeviceKind(device.name, "", "", backend)
    return known_kind(known, backend)


def known_kind(device: KnownDevice, backend: str) -> DeviceKind:
    """Return what the speed of a known device depends on, with one of llama.cpp's backends."""
    memory = "HBM" if device.is_stacked else "GDDR"
    if device.is_unified:
        memory = "unified"
    return DeviceKind(device.name, device.family, device.vendor, backend, device.generation, memory)


def model_kind(file: ModelFile) -> ModelKind:
    sizes: dict[str, int] = {}
    for tensor in file.tensors:
        sizes[tensor.type_name] = sizes.get(tensor.type_name, 0) + (tensor.n_bytes or 0)
    is_recurrent = any(state.recurrent_elements for state in file.states)
    return ModelKind(
        file.architecture, quant_class(max(sizes, key=sizes.__getitem__)), file.n_expert > 0, is_recurrent
    )


def _prefills(placement: Placement, model: ModelKind) -> tuple[tuple[int, Estimate], ...]:
    """Return the times of prompts on the first GPU; nothing if its rate is unknown, or a cache is in main memory.

    llama.cpp computes batches of 32 tokens or more there with copies of the weights in main memory, of experts those
    that are used.
    """
    device, file = placement.devices[0], placement.file
    known = recognize_device(device.name, device.free_bytes)
    rate = None if known is None else prompt_rate(known)
    if (
        rate is None
        or device.bandwidth is None
        or placement.theory is None
        or not placement.is_cache_on_devices
    ):
        return ()
    weights, in_main = file_weights(file, file.name), placement.weights_read.get(HOST)
    found = []
    for n in _PROMPTS:
        flop = 2.0 * weights.parameters.layers_active * n
        n_batches = math.ceil(n / placement.setup.n_ubatch)
        read_ms = n_batches * weights.read_bytes(n / n_batches) / device.bandwidth.bytes_per_s * 1e3
        costs = prompt_costs(
            device_kind(device),
            model,
            compute_ms=flop / rate * 1e3,
            attention_ms=placement.theory.prefill_flop(n) / rate * 1e3,
            read_ms=read_ms,
        )
        predicted = fitted_speeds().prompt.predict(costs)
        if in_main is not None:
            copied_bytes = n_batches * in_main.read_bytes(n / n_batches)
            predicted = predicted.plus(inverse(_COPIED_BYTES_PER_S, 1e3 * copied_bytes))
        found.append((n, predicted))
    return tuple(found)


def prompt_rate(device: KnownDevice) -> float | None:
    """Return the flop/s that prompt speed is fitted to, by the cores for Apple's GPUs; None if unknown."""
    tflops = device.fp16_matrix_tflops or device.fp16_tflops
    if device.gpu_cores is not None:
        tflops = device.gpu_cores * _APPLE_CORE_TFLOPS
    return None if tflops is None else tflops * 1e12
