"""Options for GPUs where there is none, or not that one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending
from ggbench.engines.events import MemoryKind
from ggbench.engines.llama.config import LoadModel
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.engine import Answer, obey

IGNORED = "llama.cpp can use no GPU here, so "


def on_a_gpu(request: Request) -> Iterator[protocol.Message | Ending]:
    if isinstance(request, LoadModel):
        yield protocol.Devices({"CUDA0": MemoryKind.GPU})
        yield protocol.Log(2, "load_tensors:        CUDA0 model buffer size =   100.00 MiB")
    yield from obey(request)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["-ngl", "-1"], "--n-gpu-layers had no effect"),
        (["-ts", "1", "-ngl", "9", "-mg", "0"], "--n-gpu-layers, --main-gpu and --tensor-split had no effect"),
    ],
)
def test_an_ignored_option_is_reported(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, given: list[str], named: str
) -> None:
    ran = ggbench("decode", "-n", "20", tiny_twin, *given)
    assert ran.code == 0
    [line] = [line for line in ran.err.splitlines() if IGNORED in line]
    assert named in line
    assert IGNORED not in ran.out


@pytest.mark.parametrize(("given", "answer"), [(["-ngl", "0"], obey), (["-ngl", "9"], on_a_gpu)])
def test_no_notice_where_nothing_is_ignored(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, given: list[str], answer: Answer
) -> None:
    machine.answers = {0: answer}
    ran = ggbench("decode", "-n", "20", tiny_twin, *given)
    assert (ran.code, IGNORED in ran.err) == (0, False)


def test_one_notice_however_many_are_measured(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    for name in ("m-q4_0.gguf", "m-q8_0.gguf"):
        (tmp_path / name).write_bytes(tiny_twin.read_bytes())
    ran = ggbench("bench", tmp_path, "-n", "20", "-ngl", "9")
    assert len(machine.workers) == 2
    assert ran.err.count(IGNORED) == 1
    assert IGNORED not in ggbench("bench", tmp_path, "-n", "20", "-ngl", "9", "--quiet").err


@pytest.mark.llama
def test_llama_cpp_itself_says_nothing(ggbench: Run, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = ggbench("decode", tiny_twin, "-n", "20", "-ngl", "5", "-mg", "1", "-t", "1", "--bandwidth", "20GB/s")
    assert ran.code == 0, ran.err
    assert ran.err.count(f"{IGNORED}--n-gpu-layers and --main-gpu had no effect") == 1
