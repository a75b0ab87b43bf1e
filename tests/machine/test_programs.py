"""The programs that hold memory: of this user, without ggbench itself."""

import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import psutil
import pytest

from ggbench.machine import programs
from ggbench.machine.programs import programs_that_hold_memory
from ggbench.machine.records import GpuProcess
from ggbench.sizing.plan_record import Program

GIB, MIB = 1 << 30, 1 << 20
ME = psutil.Process().username()


def process(pid: int, name: str | None, rss: int, shared: int = 0, user: str = ME) -> SimpleNamespace:
    memory = SimpleNamespace(rss=rss, shared=shared)
    return SimpleNamespace(pid=pid, info={"name": name, "username": user, "memory_info": memory})


PROCESSES = (
    process(os.getpid(), "ggbench", 9 * GIB), process(os.getppid(), "bash", 9 * GIB),
    process(-11, "browser", 2 * GIB, GIB), process(-12, "browser", 2 * GIB, GIB), process(-13, "editor", 5 * GIB),
    process(-14, "daemon", 8 * GIB, user="another"), process(-15, "small", 127 * MIB),
    process(-16, None, 200 * MIB), process(-17, "last", 150 * MIB),
)  # fmt: skip


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def process_iter(attrs: Sequence[str]) -> Iterator[SimpleNamespace]:
        assert set(attrs) == {"name", "username", "memory_info"}
        return iter(PROCESSES)

    monkeypatch.setattr(psutil, "process_iter", process_iter)


def test_a_persons_own_programs_are_named_by_what_they_hold_alone() -> None:
    assert programs_that_hold_memory(on_gpu=False) == (
        Program("editor", (-13,), 5 * GIB),
        Program("browser", (-11, -12), 2 * GIB),
        Program("an unnamed process", (-16,), 200 * MIB),
    )


def test_on_a_gpu_its_own_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    on_card = (GpuProcess(-11, "browser", GIB), GpuProcess(-14, "daemon", GIB), GpuProcess(-13, "editor", None))
    monkeypatch.setattr(programs, "list_gpu_processes", lambda indices: on_card if indices == [1] else ())
    assert programs_that_hold_memory(on_gpu=True, gpu_index=1) == (Program("browser", (-11, -12), GIB),)
    assert programs_that_hold_memory(on_gpu=True) == ()
