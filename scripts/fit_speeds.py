"""Fit the coefficients of the speeds of devices to published rows of llama-bench, and validate them."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from bench_shapes import Shape, shape_of
from msgspec.structs import replace
from speed_fit import SpeedFit

from ggbench.expect.cost_model import (
    Cost,
    DeviceRead,
    HostRead,
    ModelKind,
    SpeedModel,
    decode_costs,
    group_of,
    half_width,
    prompt_costs,
    quant_class,
)
from ggbench.expect.published_speed import ASSUMED_THREADS, known_kind, prompt_rate
from ggbench.machine.known_devices import KnownDevice, known_devices, recognize_device
from ggbench.models.published.benches import BenchedRow, load_bench_sources, load_benches
from ggbench.stats.intervals import Estimate

OUTPUT = Path(__file__).parent.parent / "ggbench" / "expect" / "data" / "device-speed.json"
LARGE_BYTES = 3 << 30
CURRENT = "2025-07"
"""Month from which a row counts as measured with a current llama.cpp."""
LATEST = "2026-01"
"""Month from which rows have no term for the time of their llama.cpp."""
FIRST = {"CUDA": "2024-05", "Metal": "2023-11", "CPU": "2024-08"}
"""Month before which a backend's rows are left out; `2025-01` if it is not named: its kernels were others."""
FLASH = "2025-09"
"""Month from which flash attention is assumed on where a row does not say; llama.cpp chose it itself from then on."""
LONGEST_PROMPT = 36864
"""Tokens of a prompt with what is before it, up to which its row is taken."""
HOSTS = {
    "homelab-llm-bench": 64e9,  # DDR5-4000, assumed to have two channels
    "cicero-home-ai": 57.6e9,  # DDR4-3600 in two channels
    "llmfit-755": 102e9,  # DDR4 in four channels, the rate as stated
    "llmfit-775": 102e9,  # the same host
    "reddit-1rei65v": 77e9,  # DDR5-4800 in two channels, the rate as stated
    "ollama-14579": 86.4e9,  # DDR5-5400, assumed to have two channels
    "mudkipdev-flake": 96e9,  # DDR5-6000, assumed to have two channels
    "insiderllm-tamanna-3000": 48e9,  # DDR4-3000 in two channels
    "insiderllm-tamanna-2133": 34.1e9,  # DDR4-2133 in two channels
    "insiderllm-rushuna": 34.1e9,  # DDR4-2133 in two channels
    "llama.cpp-15396-14923651": 83.2e9,  # DDR5-5200, assumed to have two channels
    "msf-framework13": 89.6e9,  # DDR5-5600 in two channels
    "llama.cpp-15396-14720821": 76.8e9,  # DDR5-4800 in two channels
    "llama.cpp-15396-14796629": 51.2e9,  # DDR4-3200 in two channels
}
"""Bandwidth [bytes/s] of the main memory of places that state it, or its modules."""
CPUS = {
    "AMD EPYC 9554": (460.8e9, 64),  # twelve channels, as stated
    "AMD Ryzen 7 7840HS": (89.6e9, 8),  # DDR5-5600 in two channels
    "AMD Ryzen 7 7940HS": (89.6e9, 8),  # DDR5-5600 in two channels
    "AMD Ryzen 9 7950X": (83.2e9, 16),  # DDR5-5200 in two channels
    "AMD Ryzen Threadripper 3990X": (102.4e9, 64),  # DDR4-3200 in four channels
    "AMD Ryzen Threadripper PRO 3995WX": (204.8e9, 64),  # DDR4-3200 in eight channels
    "AMD Ryzen Threadripper PRO 5995WX": (204.8e9, 64),  # DDR4-3200 in eight channels
    "Intel Core Ultra 7 155H": (89.6e9, 6),  # DDR5-5600 in two channels
    "Intel Core Ultra 7 165H": (89.6e9, 6),  # DDR5-5600 in two channels
    "Intel Core Ultra 7 258V": (136.5e9, 4),  # LPDDR5X-8533
    "Intel Core i5-4278U": (25.6e9, 2),  # DDR3L-1600 in two channels, as stated
}
"""Bandwidth [bytes/s] of the fastest memory that a CPU's data sheet allows unless its row states it, and its cores; a
hybrid CPU's fast ones. Apple's CPUs and Strix Halo's are left out, which read less than the memory they share gives."""
NAMED = ("read:device", "read:generation", "host", "crossing")
"""Groups of terms of decoding whose rows an estimate names."""
FORKS = ("ik_llama", "bonsai")
"""Places whose rows are of forks, or compare with them."""
LLAMA_CPP_BESIDE_FORK = "ik_llama.cpp-164"
"""A place whose rows are of llama.cpp, beside those of a fork."""


class Row(msgspec.Struct, frozen=True):
    """A published row with its costs."""

    published: BenchedRow
    device: str
    """Its name."""
    shape: Shape
    costs: tuple[Cost, ...]
    ms: float

    @property
    def place(self) -> str:
        """`place=` or `older place=` and where it was measured: rows of one place err together."""
        row = self.published
        return f"{'place' if self.is_current else 'older place'}={row.source}/{self.device}/{row.backend}"

    @property
    def is_current(self) -> bool:
        return self.published.date >= CURRENT

    @property
    def is_large(self) -> bool:
        return self.shape.weight_bytes >= LARGE_BYTES

    @property
    def is_recurrent(self) -> bool:
        return bool(self.shape.kv.state_bytes)

    @property
    def is_split(self) -> bool:
        """Whether it is partly in the memory of a device, partly in main memory."""
        return self.published.backend != "CPU" and any(cost.terms[0] == "host" for cost in self.costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--validate", nargs="*", choices=list(KEYS), help="also fit without each device, model or year"
    )
    parser.add_argument("--worst", type=int, default=0, help="print as many of the worst predictions")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    fits, behind = {}, dict[str, list[int]]()
    for kind, rows in (("decode", decode_rows()), ("prompt", prompt_rows())):
        fit = fitted(rows).run()
        fits[kind] = fit.model()
        behind = behind or rows_by_term(rows)
        devices = {row.device for row in rows}
        print(f"{kind}: {len(rows)} rows of {len(devices)} devices, {len(fits[kind].terms)} terms; "
              f"residual {fits[kind].residual:.3f}")  # fmt: skip
        print(", ".join(f"{group} {spread:.2f}" for group, spread in sorted(fit.spreads.items())))
        if options.validate is not None:
            print_elsewhere(kind, rows)
            validate(kind, rows, options.validate or list(KEYS), options.worst)
    options.output.write_text(document(fits, behind), "utf-8")
    print(f"{options.output.name}: {options.output.stat().st_size / 1e3:.0f} kB")


def document(fits: dict[str, SpeedModel], behind: dict[str, list[int]]) -> str:
    """Return the coefficients as JSON, and the rows behind them."""
    encoded = msgspec.json.encode({**fits, "rows": behind})
    rounded = json.loads(encoded, parse_float=lambda text: float(f"{float(text):.3g}"))
    return json.dumps(rounded, separators=(",", ":")) + "\n"


def rows_by_term(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the indices of the published rows that the terms which estimates name are fitted to."""
    indices = {row: index for index, row in enumerate(load_benches())}
    found: dict[str, list[int]] = {}
    for row in rows:
        for term in {term for cost in row.costs for term in cost.terms if group_of(term) in NAMED}:
            found.setdefault(term, []).append(indices[row.published])
    return dict(sorted(found.items()))


def fitted(rows: Sequence[Row]) -> SpeedFit:
    return SpeedFit([row.costs for row in rows], [row.ms for row in rows], [row.place for row in rows])


def decode_rows() -> list[Row]:
    """Return the rows of decoding on known devices and CPUs, if the bandwidths of the memories are known."""
    found = []
    for row, device, shape in _usable(lambda row: row.test.startswith("tg")):
        position = row.n_depth + int(row.test[2:] or 128) / 2
        on_host, n_crossed = _host_share(row, shape), _n_crossed(row, shape)
        of_experts = (shape.expert_read_bytes or 0.0) * n_crossed / shape.n_layer
        host_bytes = of_experts + on_host * shape.read_bytes
        kv_bytes = shape.kv.read_bytes(position)
        reads = []
        if device is not None:
            read = DeviceRead(
                known_kind(device, row.backend),
                _bandwidth(row, device),
                (shape.read_bytes - host_bytes) / row.count,
                kv_bytes * (1 - on_host) / row.count,
                shape.n_layer * (1 - on_host) / row.count,
            )
            reads = [read] * row.count
        bandwidth, n_cores = CPUS.get(row.device, (HOSTS.get(row.source, math.inf), ASSUMED_THREADS))
        host = HostRead(
            bandwidth,
            host_bytes,
            kv_bytes * on_host,
            shape.n_layer * on_host,
            shape.n_active * host_bytes / shape.read_bytes,
            row.n_threads or n_cores,
            row.source if device else row.device,
        )
        costs = decode_costs(
            reads,
            _model(row, shape),
            host=host if host_bytes else None,
            n_crossed=n_crossed,
            has_flash_attn=bool(row.flash_attn) if row.flash_attn is not None else row.date >= FLASH,
        )
        name = device.name if device else row.device
        found.append(Row(row, name, shape, tuple(_merged(_of_its_era(costs, row, shape))), 1e3 / row.tok_s))
    return found


def prompt_rows() -> list[Row]:
    """Return the rows of prompts on one known device."""
    found = []
    for row, device, shape in _usable(_is_plain_prompt):
        if device is None or row.n_cpu_moe or _host_share(row, shape):
            continue
        rate, n_tokens = prompt_rate(_with_cores(row, device)), int(row.test[2:])
        if rate is None or n_tokens < 128 or row.n_depth + n_tokens > LONGEST_PROMPT:
            continue
        n_before = row.n_depth
        attention = shape.kv.prefill_flop(n_before + n_tokens) - shape.kv.prefill_flop(n_before)
        n_batches = math.ceil(n_tokens / (row.n_ubatch or 512))
        read_ms = n_batches * shape.weight_bytes / _bandwidth(row, device) * 1e3
        costs = prompt_costs(
            known_kind(device, row.backend),
            _model(row, shape),
            compute_ms=2 * shape.n_active * n_tokens / rate * 1e3,
            attention_ms=attention / rate * 1e3,
            read_ms=read_ms,
        )
        found.append(
            Row(row, device.name, shape, tuple(_of_its_era(costs, row, shape)), 1e3 * n_tokens / row.tok_s)
        )
    return found


def _of_its_era(costs: Sequence[Cost], row: BenchedRow, shape: Shape) -> list[Cost]:
    """Return the costs with the coefficients of the builds of that time besides."""
    return [Cost(ms, (*terms, *_era(row, shape))) for ms, terms in costs]


def _is_plain_prompt(row: BenchedRow) -> bool:
    return row.test.startswith("pp") and row.count == 1


def _usable(is_wanted: Callable[[BenchedRow], bool]) -> Iterator[tuple[BenchedRow, KnownDevice | None, Shape]]:
    """Yield the rows to fit with their device, None for a CPU; print why the others are left out."""
    left_out: Counter[str] = Counter()
    for row in filter(is_wanted, load_benches()):
        device = None if row.backend == "CPU" else _device(row.device)
        shape = shape_of(row)
        reason = f"model {row.model} not known" if shape is None else _is_unfit(row, device, shape)
        if shape is None or reason:
            left_out[reason] += 1
        else:
            yield row, device, shape
    print("left out:", ", ".join(f"{reason} {n}" for reason, n in left_out.most_common()))


def _is_unfit(row: BenchedRow, device: KnownDevice | None, shape: Shape) -> str:
    """Return why a row is left out; empty if it is not."""
    remark = next(source.remark for source in load_bench_sources() if source.id == row.source)
    on_host = row.backend != "CPU" and (row.n_cpu_moe or _host_share(row, shape))
    gpu_bytes = (
        math.inf if device is None else device.gpu_bytes * row.count * (1.35 if device.is_unified else 1)
    )
    states_host = row.source in HOSTS
    is_fork = any(fork in row.source for fork in FORKS) and row.source != LLAMA_CPP_BESIDE_FORK
    reasons = {
        "device not known": device is None and row.device not in CPUS,
        "several sockets": device is None and row.count > 1,
        "fork": is_fork,
        "too old": row.date < FIRST.get(row.backend, "2025-01"),
        "on a Raspberry Pi": "Raspberry Pi" in remark,
        "without CUDA graphs": "without CUDA graphs" in remark,
        "main memory not known": on_host and (not states_host or shape.expert_read_bytes is None),
        "shared memory not known": device is not None
        and "fastest memory" in device.bandwidth_source
        and not states_host,
        "larger than the memory": not on_host and shape.weight_bytes > gpu_bytes,
        "split by rows": row.split_mode in ("row", "tensor"),
    }
    return next((reason for reason, is_true in reasons.items() if is_true), "")


def _device(name: str) -> KnownDevice | None:
    return next((device for device in known_devices() if device.id == name), None) or _of_any_size(name)


def _with_cores(row: BenchedRow, device: KnownDevice) -> KnownDevice:
    """Return an Apple device with the GPU cores that its row states."""
    found = _CORES.fullmatch(row.device)
    return replace(device, gpu_cores=int(found["cores"])) if found else device


def _bandwidth(row: BenchedRow, device: KnownDevice) -> float:
    """Return the bandwidth [bytes/s] of a device's memory: of the modules if it shares them."""
    of_modules = HOSTS.get(row.source) if device.is_unified else None
    return of_modules or device.bandwidth_gb_s * 1e9


def _of_any_size(name: str) -> KnownDevice | None:
    """Return a device with a name whose sizes differ in nothing else; fewer GPU cores have the slower memory."""
    found = _CORES.fullmatch(name)
    alike = [device for device in known_devices() if device.name == (found["name"] if found else name)]
    rates = sorted({device.bandwidth_gb_s for device in alike})
    if len(rates) == 1:
        return max(alike, key=lambda device: device.memory_gib)
    if found and len(rates) == 2:
        return next(
            device for device in alike if device.bandwidth_gb_s == rates[int(found["cores"]) >= _MANY_CORES]
        )
    return recognize_device(name, None)


_CORES = re.compile(r"(?P<name>.+) \((?P<cores>\d+) GPU cores\)")
_MANY_CORES = 40
"""The M3 Max and M4 Max with 40 cores have the faster memory."""


def _host_share(row: BenchedRow, shape: Shape) -> float:
    """Return the share of the layers, the output's among them, that the CPU computes."""
    if row.backend == "CPU":
        return 1.0
    if row.n_gpu_layers is None or not 0 <= row.n_gpu_layers <= shape.n_layer or row.backend == "Metal":
        return 0.0
    return 1 - row.n_gpu_layers / (shape.n_layer + 1)


def _n_crossed(row: BenchedRow, shape: Shape) -> int:
    """Return the number of offloaded layers with experts in main memory; those that are not offloaded come first."""
    return max(0, min(row.n_cpu_moe or 0, shape.n_layer) - round(_host_share(row, shape) * (shape.n_layer + 1)))


def _model(row: BenchedRow, shape: Shape) -> ModelKind:
    return ModelKind(shape.architecture, quant_class(row.quant), shape.is_moe, bool(shape.kv.state_bytes))


def _era(row: BenchedRow, shape: Shape) -> tuple[str, ...]:
    """Return the term of the time of a row's llama.cpp; nothing for a recent one."""
    if row.date >= LATEST:
        return ()
    if row.date >= CURRENT:
        return (f"era=late 2025/{row.backend}/{'experts' if shape.is_moe else 'dense'}",)
    return (f"era={'2024' if row.date < '2024-09' else '2025'}/{row.backend}",)


def _merged(costs: Sequence[Cost]) -> Iterator[Cost]:
    """Yield the sum of the costs with the same terms, as of several equal devices."""
    sums: Counter[tuple[str, ...]] = Counter()
    for cost in costs:
        sums[cost.terms] += cost.least_ms
    return (Cost(ms, terms) for terms, ms in sums.items())


def print_elsewhere(kind: str, rows: Sequence[Row]) -> None:
    """Print how far rows are from the median of other places' with the same device, model, quant and depth."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in (each for each in rows if not each.is_split):
        each = row.published
        test = "decode" if each.test.startswith("tg") else each.test
        same = (
            row.device,
            each.count,
            each.backend,
            each.model,
            each.quant,
            each.n_depth,
            test,
            row.is_current,
        )
        alike.setdefault(same, []).append(row)
    tried = []
    for group in alike.values():
        for row in group:
            others = [other.ms for other in group if other.published.source != row.published.source]
            if others:
                ms = statistics.median(others)
                tried.append((row, Estimate(ms, ms, ms)))
    print(f"\n{kind}, from others' rows of the same device, model, quant and depth:")
    for label, is_of in CLASSES.items():
        _print_class(label, [each for each in tried if is_of(each[0])])


def validate(kind: str, rows: Sequence[Row], names: Sequence[str], n_worst: int) -> None:
    """Predict each row from a fit from nothing that saw none of its device, of its model, or of its year."""
    for name in names:
        folds = [(rows, left_out, name) for left_out in sorted(set(map(KEYS[name], rows)))]
        with multiprocessing.get_context("fork").Pool() as pool:
            tried = [each for fold in pool.map(_predicted_without, folds, chunksize=1) for each in fold]
        print(f"\n{kind}, without the {name}:")
        for label, is_of in CLASSES.items():
            _print_class(label, [each for each in tried if is_of(each[0])])
        _print_devices([each for each in tried if each[0].is_large and each[0].is_current])
        tried.sort(key=lambda each: -abs(math.log(each[0].ms / each[1].value)))
        for row, ms in tried[:n_worst]:
            told = row.published
            print(f"  {told.device:24} {told.backend:7}x{told.count} {told.model:24} {told.quant:8} d{told.n_depth:<6}"
                  f"{1e3 / row.ms:8.1f} {1e3 / ms.value:8.1f} ({1e3 / ms.high:.1f}-{1e3 / ms.low:.1f}) {told.date} "
                  f"{told.source}")  # fmt: skip


def _predicted_without(fold: tuple[Sequence[Row], str, str]) -> list[tuple[Row, Estimate]]:
    rows, left_out, name = fold
    model = fitted([row for row in rows if KEYS[name](row) != left_out]).run().model()
    return [(row, model.predict(row.costs)) for row in rows if KEYS[name](row) == left_out]


KEYS: dict[str, Callable[[Row], str]] = {
    "device": lambda row: row.device,
    "model": lambda row: row.published.model,
    "year": lambda row: row.published.date[:4],
}


CLASSES: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "large, current": lambda row: row.is_large and row.is_current,
    "- dense": lambda row: _is_plain(row) and not row.shape.is_moe and not row.is_recurrent,
    "- dense, NVIDIA with CUDA": lambda row: (
        _is_plain(row) and not row.shape.is_moe and not row.is_recurrent and row.published.backend == "CUDA"
    ),
    "- experts": lambda row: _is_plain(row) and row.shape.is_moe and not row.is_recurrent,
    "- recurrent": lambda row: _is_plain(row) and row.is_recurrent,
    "- at 32k and more": lambda row: row.is_large and row.is_current and row.published.n_depth >= 32000,
    "- at depth": lambda row: row.is_large and row.is_current and row.published.n_depth > 0,
    "- several devices": lambda row: row.is_large and row.is_current and row.published.count > 1,
    "- partly in main memory": lambda row: row.is_large and row.is_split,
    "large, older": lambda row: row.is_large and not row.is_current,
    "small": lambda row: not row.is_large,
    **{
        f"large, current, {backend}": lambda row, backend=backend: (
            row.is_large and row.is_current and row.published.backend == backend
        )
        for backend in ("CUDA", "ROCm", "Vulkan", "SYCL", "Metal", "CPU")
    },
}


def _is_plain(row: Row) -> bool:
    return (
        not row.is_split
        and row.is_large
        and row.is_current
        and not row.published.n_depth
        and row.published.count == 1
    )


def _print_class(label: str, tried: Sequence[tuple[Row, Estimate]]) -> None:
    if not tried:
        return
    errors = [abs(row.ms / ms.value - 1) for row, ms in tried]
    width = statistics.median(ms.high / ms.value - 1 for _, ms in tried)
    covered = sum(ms.low <= row.ms <= ms.high for row, ms in tried) / len(tried)
    error = statistics.median(errors)
    near = sum(each <= 0.15 for each in errors) / len(tried)
    needed = _needed_factor(tried)
    print(
        f"| {label:24} | {len(tried):4} | {error:5.1%} | {near:4.0%} | {covered:4.0%} | ±{width:.0%} | {needed:.2f} |"
    )


def _needed_factor(tried: Sequence[tuple[Row, Estimate]]) -> float:
    """Return the half-width [standard deviations] that would hold 95 % of the rows; nan without intervals."""
    apart = sorted(
        abs(math.log(row.ms / ms.value)) * half_width(row.costs) / math.log(ms.high / ms.value)
        for row, ms in tried
        if ms.high > ms.value
    )
    return apart[math.ceil(0.95 * len(apart)) - 1] if apart else math.nan


def _print_devices(tried: Sequence[tuple[Row, Estimate]]) -> None:
    """Print the same where each device counts once, with the median of its rows."""
    errors: dict[str, list[float]] = {}
    for row, ms in tried:
        errors.setdefault(row.device, []).append(abs(row.ms / ms.value - 1))
    medians = [statistics.median(each) for each in errors.values()]
    near = sum(each <= 0.15 for each in medians) / len(medians)
    print(
        f"| {'large, current, devices':24} | {len(medians):4} | {statistics.median(medians):5.1%} | {near:4.0%} | | |"
    )


if __name__ == "__main__":
    main()
