"""llama.cpp's Vulkan backend: where a model lies, what was planned of it, and how running out of memory ends.

Sizes are llama.cpp's own, from its log. The driver computes on the CPU, so nothing is said of speed.
"""

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from ggbench.engines.contract import Prefill, Request
from ggbench.engines.endings import Completed, Ending, Outcome
from ggbench.engines.events import Loaded
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess
from ggbench.units import MIB
from tests.gpu.conftest import Note
from tests.gpu.vulkan.conftest import Ggbench, Ran

pytestmark = [pytest.mark.vulkan, pytest.mark.timeout(1800)]

DEVICE, HOST = "Vulkan0", "CPU"
PARTS = ("weight_bytes", "kv_bytes", "compute_bytes")
KNOWN = ("--bandwidth", "10GB/s")
"""Nothing is measured of a machine whose speed means nothing."""


def decode(ggbench: Ggbench, model: Path, *words: object) -> Ran:
    return ggbench("decode", model, "-n", 4, "-c", 512, *KNOWN, *words)


def by_device(buffers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum buffers by device: those of main memory together, with the logits, as a plan counts them."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(PARTS, 0))
    for each in buffers:
        device = found[HOST if each["place"] == "host" else each["device"]]
        for part in PARTS:
            device[part] += each[part]
        device["compute_bytes"] += each["output_bytes"]
    return dict(found)


@pytest.mark.parametrize(
    ("model", "placement"),
    [("small", ()), ("small", ("-ngl", "4")), ("small_moe", ("--cpu-moe",))],
    ids=["all layers", "half the layers", "experts in main memory"],
)
def test_each_device_holds_what_was_planned_for_it(
    model: str, placement: tuple[str, ...], ggbench: Ggbench, note: Note, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)

    planned = ggbench("plan", path, "-c", 512, *placement)
    ran = decode(ggbench, path, "--no-mmap", *placement)  # a mapped buffer spans tensors that lie elsewhere

    assert (planned.code, ran.code) == (0, 0), (planned.stderr, ran.stderr)
    (row,) = planned.document["rows"]
    plans = {each["device"]: {part: each[part] for part in PARTS} for each in row["devices"]}
    buffers = by_device(ran.document["run"]["memory"]["buffers"])
    note(
        f"{model}, {' '.join(placement) or 'all layers'}",
        **{f"{device} planned": parts for device, parts in plans.items()},
        **{f"{device} of llama.cpp": parts for device, parts in buffers.items()},
    )
    assert set(buffers) == set(plans) == {DEVICE, HOST}
    for device, parts in buffers.items():
        for part, n_bytes in parts.items():
            assert plans[device][part] == pytest.approx(n_bytes, abs=MIB), (device, part)
    whole, moved = row["weight_bytes"], buffers[HOST]["weight_bytes"]
    share = {(): 0.0, ("-ngl", "4"): 0.5, ("--cpu-moe",): 0.5}[placement]
    assert whole * share < moved < whole * (share + 0.3)


def test_the_device_is_named_with_its_memory(ggbench: Ggbench, small: Path, note: Note) -> None:
    checkup, planned = ggbench("doctor"), ggbench("plan", small)

    llama, machine = checkup.document["llama_cpp"], planned.document["machine"]
    (device,) = (each for each in llama["devices"] if each["name"] == DEVICE)
    note("device as doctor and plan name it", doctor=device, plan=machine)

    assert "Vulkan" in llama["backends"]
    assert "llvmpipe" in device["description"]
    assert machine["devices"]
    assert machine["device"] == device["description"]


def test_a_run_stores_backends_and_build_flags(ggbench: Ggbench, small: Path, library: Path, note: Note) -> None:
    environment = decode(ggbench, small).document["run"]["head"]["environment"]
    note("stored with a run", **{name: environment[name] for name in ("backends", "build_flags")})

    assert {"Vulkan", "CPU"} <= set(environment["backends"])
    if (library / "build_flags.txt").exists():
        assert "-DGGML_VULKAN=on" in environment["build_flags"]


def test_a_limit_is_refused_as_the_driver_counts_nothing(ggbench: Ggbench, small: Path, note: Note) -> None:
    """Mesa's software driver reports all of its memory as free whatever is taken."""
    ended = ggbench("maxctx", small, "--memory-limit", "64MiB", "-ub", 64)
    note("a limit of the device", exit_code=ended.code, said=ended.stderr.strip().splitlines()[-2:])

    assert ended.code == 6
    assert "its memory cannot be limited" in ended.stderr


def test_a_cache_beyond_the_largest_tensor_of_the_device_does_not_fit(
    ggbench: Ggbench, small: Path, note: Note
) -> None:
    """llama.cpp aborts of it; a plan whose other layers lie in main memory would go on to such lengths."""
    planned, ended = ggbench("plan", small, "-ngl", 4), decode(ggbench, small, "-c", 2**20)
    (row,) = planned.document["rows"]
    note("a tensor too large for the device", planned_n_ctx=row["planned_n_ctx"], said=ended.stderr.splitlines()[-2:])

    assert planned.code == 0, planned.stderr
    assert 0 < row["planned_n_ctx"] < 2**20
    assert ended.code == 3
    assert "is larger than Vulkan0 lets one tensor be" in ended.stderr


def answer(worker: WorkerProcess, request: Request) -> list[object]:
    return list(worker.call(request))


def test_a_killed_worker_leaves_the_device_as_it_was(small: Path, note: Note) -> None:
    config = LlamaConfig(n_ctx=512, threads=1)
    left = []
    for kill in (True, False):
        with closing(WorkerProcess(None, 600)) as worker:
            loaded = answer(worker, LoadModel(str(small), config))
            assert loaded[-1] == Completed()
            left += [each.left_bytes for each in loaded if isinstance(each, Loaded)]
            assert answer(worker, MakeContext(config))[-1] == Completed()
            rss_bytes = psutil.Process(worker.pid).memory_info().rss
            if kill:
                os.kill(worker.pid, signal.SIGKILL)
            (ended,) = (each for each in answer(worker, Prefill(16)) if isinstance(each, Ending))
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE
        if kill:
            killed = ended
    note(
        "a killed worker, and the next", resident_bytes=rss_bytes, left_bytes=left, killed=killed.outcome.value,
        reason=killed.reason, next=ended.outcome.value,
    )  # fmt: skip

    assert killed.outcome is Outcome.CRASHED
    assert ended == Completed()
    assert left[0] == left[1]
