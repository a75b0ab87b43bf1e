"""A device profile as a table and as a document."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.gguf_file.ggml_types import row_bytes
from ggbench.machine.profile import MachineProfile, ProfiledDevice
from ggbench.show.document import Document, of
from ggbench.show.tables import fitted_table, names, right
from ggbench.stats.profile_speed import AttentionWork, attention_ns
from ggbench.text import sanitize
from ggbench.units import GIB, format_bandwidth, format_bytes, format_number

PROFILE = Document("profile", "profile", "The timings of a machine.", of(MachineProfile, without="schema"))


def profile_report(profile: MachineProfile, *, width: int) -> RenderableType:
    """Return what each memory reaches, by type of weights and of KV cache, and the noise."""
    devices = [each for each in (*profile.devices, profile.host) if each.rates]
    tables = [part for device in devices for part in _device(device, width)]
    noise = f"noise: {format_number(100 * profile.noise, 2)} %; llama.cpp {sanitize(profile.llama_cpp)}"
    return Group(*tables, Text(noise, style="dim"))


def _device(device: ProfiledDevice, width: int) -> tuple[RenderableType, RenderableType]:
    one, n_batch = device.rates[1], max(device.rates)
    most = device.bandwidth_bytes_per_s
    rate = "unknown bandwidth" if most is None else format_bandwidth(most)
    title = f"{sanitize(device.name)}, {format_bytes(device.memory_bytes)}, {rate}"
    reached = [GIB / each.ms * 1e3 for each in one.gib_ms.values()]
    cells = [
        names("weights", one.gib_ms),
        right("a token", (format_number(each.ms) for each in one.gib_ms.values()), "ms/GiB", stays=True),
        right("± noise", (format_number(100 * each.spread, 2) for each in one.gib_ms.values()), "%", 1),
        right(
            "of bandwidth",
            ("?" if most is None else format_number(100 * each / most, 3) for each in reached),
            "%",
            stays=True,
        ),
        *(
            right(
                f"batch {n}",
                (format_number(rates.gib_ms[name].ms) if name in rates.gib_ms else "?" for name in one.gib_ms),
                "ms/GiB",
                2 if n == n_batch else 3,
            )
            for n, rates in device.rates.items()
            if n > 1
        ),
    ]
    caches = []
    for cache, timed in one.attention.items():
        work = AttentionWork(128, 32, 2 * 8 * row_bytes(cache.partition("/")[0], 128))
        caches.append(f"{sanitize(cache)} {format_number(attention_ns(timed, work)[0])} µs")
    layer = f"a layer {format_number(1e3 * one.layer_ms)} µs, and for each 1,000 positions of 32 heads on 8 of KV: "
    return Group(Text(title, style="bold"), fitted_table(cells, width=width)), Text(
        layer + ", ".join(caches), style="dim"
    )
