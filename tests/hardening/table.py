"""The hardening table: every row at its full number of trials, or at a few of each."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from ggbench.engines.llama.build import has_backend
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine import bandwidth
from ggbench.machine.bandwidth import ReadRate
from ggbench.machine.host import default_threads
from tests.conftest import TINY
from tests.hardening import (
    answers,
    bindings,
    descriptions,
    doors,
    drivers,
    frontends,
    growth,
    headers,
    kills,
    lines,
    names,
    network,
    outputs,
    rpc_kills,
    scarcity,
    stores,
    terminals,
    together,
)
from tests.hardening.trials import Trials, own_home

COLUMNS = ("", "tried", "tracebacks", "hangs", "orphans", "bytes lost", "bytes unverified")


@dataclass(frozen=True)
class Trial:
    draw: random.Random
    folder: Path
    model: Path
    """A twin small enough to be loaded in a moment."""
    real: tuple[Path, ...]
    """Published files whose headers are damaged as well; the first is scored."""
    is_quick: bool
    minutes: float = 60.0
    """Duration of the row `frontends`."""


ROWS: dict[str, Callable[[Trial], Trials]] = {
    "headers": lambda t: headers.damaged_headers(100 if t.is_quick else 10_000, t.draw, t.folder, t.real),
    "plans": lambda t: headers.damaged_plans(1 if t.is_quick else 40, t.draw, t.folder),
    "stores": lambda t: stores.damaged_stores(40 if t.is_quick else 1000, t.draw, t.folder),
    "caches": lambda t: stores.damaged_caches(40 if t.is_quick else 600, t.draw, t.folder),
    "rows": lambda t: doors.damaged_rows(12 if t.is_quick else 1000, t.draw, t.folder),
    "published": lambda t: doors.damaged_published(4 if t.is_quick else 1000, t.draw),
    "notes": lambda t: doors.damaged_notes(20 if t.is_quick else 2000, t.draw, t.folder, t.model),
    "lines": lambda t: lines.damaged_lines(8 if t.is_quick else 10_000, t.draw),
    "machines": lambda t: descriptions.described_machines(10 if t.is_quick else 2500),
    "network": lambda t: network.network_faults(t.folder, 3 if t.is_quick else None),
    "hub": lambda t: network.lying_hub(2 if t.is_quick else 500, t.draw, t.folder),
    "answers": lambda t: answers.broken_servers(1 if t.is_quick else 200, t.draw, t.folder, t.model),
    "bindings": lambda t: bindings.doctored_bindings(2 if t.is_quick else 104, t.draw, t.folder, t.model),
    "outputs": lambda t: outputs.written_files(t.folder, t.model, 1 if t.is_quick else None),
    "names": lambda t: names.hostile_names(t.folder, dict(list(names.NAMES.items())[:1]) if t.is_quick else None),
    "terminals": lambda t: terminals.narrow_terminals(t.model, is_quick=t.is_quick),
    "variables": lambda t: terminals.odd_variables(3 if t.is_quick else 600, t.draw, t.folder, t.model),
    "kills": lambda t: kills.kills_of_measurements(
        2 if t.is_quick else 100, t.draw, t.model, 1.5 if t.is_quick else 5, next(iter(t.real), None)
    ),
    "sessions": lambda t: kills.kills_of_measurements(1 if t.is_quick else 50, t.draw, t.model, 5, only="session"),
    "servers": lambda t: kills.kills_of_servers(3 if t.is_quick else 100, t.draw, t.model, t.folder),
    "writers": lambda t: kills.kills_of_writers(1 if t.is_quick else 40, t.draw, t.folder),
    "memory": lambda t: scarcity.out_of_memory(t.model, 1 if t.is_quick else None),
    "drafts": lambda t: scarcity.drafts_out_of_memory(
        t.model, cached_twin("draft", TINY, "q4_0", t.model.parent), 3 if t.is_quick else 60
    ),
    "drivers": lambda t: drivers.aborting_drivers(3 if t.is_quick else 84, t.draw, t.folder, t.model),
    "disk": lambda t: scarcity.full_disk(t.folder, t.model, (4096,) if t.is_quick else scarcity.FILE_BYTES),
    "together": lambda t: together.all_at_once(t.draw, t.folder, t.model, 1),
    "frontends": lambda t: frontends.two_front_ends(5 if t.is_quick else 60 * t.minutes, t.draw, t.folder, t.model),
    "growth": lambda t: growth.growing_store((50, 200) if t.is_quick else growth.RUNS),
}
if has_backend("rpc"):
    ROWS["rpc"] = lambda t: rpc_kills.kills_of_rpc_servers(1 if t.is_quick else 10, t.draw, t.model)
SLOW = (
    "variables",
    "answers",
    "bindings",
    "servers",
    "memory",
    "drafts",
    "drivers",
    "disk",
    "together",
    "frontends",
    "growth",
    "rpc",
)
"""Rows that start many processes, which a quick run leaves out."""
LONGEST = "frontends"
TIMED = "growth"
"""Row whose result is a time."""


def run_rows(
    chosen: Sequence[str], *, is_quick: bool, seed: int = 0, real: Sequence[Path] = (), minutes: float = 60.0
) -> Iterator[tuple[Trials, float]]:
    """Yield each row with the seconds that it took, in a home of its own."""
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="ggbench-hardening-") as folder, own_home(Path(folder) / "home"):
            _know_bandwidth()
            model = cached_twin("tiny", TINY, "q8_0", Path(folder) / "twins")
            if name in (
                "rows",
                "published",
                "outputs",
                "names",
                "terminals",
                "variables",
                "kills",
                "writers",
                "disk",
                "together",
                "frontends",
            ):
                names.store_with_runs()
            began = time.monotonic()
            row = ROWS[name](Trial(random.Random(seed), Path(folder) / "work", model, tuple(real), is_quick, minutes))
            yield row, time.monotonic() - began


def made_rows(chosen: Sequence[str], **options: Any) -> list[tuple[Trials, float]]:  # noqa: ANN401 - those of run_rows
    """Return the rows, for another process."""
    return list(run_rows(chosen, **options))


def _know_bandwidth() -> None:
    """Keep what no trial is about: measuring it takes seconds in each home."""
    rate = ReadRate(20e9, default_threads(), "memcmp", busy=False)
    with mock.patch.object(bandwidth, "probe_reads", return_value=rate):
        bandwidth.cached_bandwidth(default_threads())


def markdown(rows: Sequence[Trials]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * (len(COLUMNS) - 1)}"]
    lines += [f"| {row.name} | {' | '.join(f'{count:,}' for count in row.counts)} |" for row in rows]
    return "\n".join(lines)
