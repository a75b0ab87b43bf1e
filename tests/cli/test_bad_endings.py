"""Measuring commands that end badly: the reason in the row, one hint in one line, and the exit code of its kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, Request
from ggbench.engines.endings import Crashed, Ending, Failed, Outcome, OutOfMemory
from ggbench.engines.llama.config import LoadModel, MakeContext
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.engine import Answer, FakeWorker, obey


def crash(_request: Request) -> Iterator[protocol.Message | Ending]:
    yield Crashed.exited("llama.cpp", -6, "last words")


def starve(_request: Request) -> Iterator[protocol.Message | Ending]:
    yield OutOfMemory("load", "cudaMalloc failed: out of memory")


def starve_later(request: Request) -> Iterator[protocol.Message | Ending]:
    yield from obey(request) if isinstance(request, LoadModel) else starve(request)


def fail_on_cuda(_request: Request) -> Iterator[protocol.Message | Ending]:
    yield Crashed.exited("llama.cpp", -6, "CUDA error: no kernel image is available for execution on the device")


def refuse(message: str) -> Answer:

    def answer(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, MakeContext):
            yield Failed("context", f"llama_init_from_model: {message}")
        else:
            yield from obey(request)

    return answer


@pytest.mark.parametrize(("answer", "code", "outcome"), [(crash, 6, "crashed"), (starve, 3, "out_of_memory")])
def test_a_run_that_ends_badly(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, answer: object, code: int, outcome: str
) -> None:
    machine.answers = {0: answer}  # type: ignore[dict-item]
    ran = ggbench("decode", tiny_twin, "-n", "300", "--json")
    assert ran.code == code
    assert ran.json["outcome"] == outcome


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (crash, "try another quant: if it works, download this file again"),
        (refuse("quantized V cache requires flash_attn to be enabled"), "Hint: use --flash-attn on"),
        (refuse("K cache type q8_0 with block size 32 does not divide n_embd_head_k=80"), "--type-k f16"),
        (refuse("model does not support different K (f16) and V (q8_0) cache types"), "--type-k q8_0 --type-v q8_0"),
        (fail_on_cuda, "the driver may be too old for this build"),
        (starve, "Hint: a smaller quant needs less"),
        (starve_later, "ggbench maxctx {} --n-ubatch 256 --threads 2 --memory-limit 1MiB finds the n_ctx that fits"),
    ],
)
def test_an_only_run_that_ends_badly_says_what_to_do(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, answer: Answer, hint: str
) -> None:
    machine.answers = {0: answer}
    ran = ggbench("decode", tiny_twin, "-n", "300", "--memory-limit", "1MiB", "-ub", "256")
    *_, reason, last = ran.err.splitlines()
    assert last.startswith("Hint: ")
    assert hint.format(tiny_twin) in last
    assert reason.count("out of memory") <= 2  # cudaMalloc says it too
    machine.answers = {0: answer}
    (line,) = ggbench("decode", tiny_twin, "-n", "300", "--quiet").err.splitlines()
    assert line.startswith("Error: ")
    machine.answers = {}
    assert "Hint" not in ggbench("decode", tiny_twin, "-n", "300").err


@pytest.mark.parametrize("content", [b"", b"plain text, no model", b"GGUF\x03\0\0\0" + b"\xff" * 16])
def test_a_bad_file_is_exit_code_5(ggbench: Run, machine: FakeMachine, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    for command in ("decode", "inspect"):
        ran = ggbench(command, path)
        assert ran.code == 5
        assert ran.err.splitlines()[-2].startswith("Error: ")
        assert ran.err.count(ran.err.splitlines()[-2].removeprefix("Error: ")) == 1
    assert machine.workers == []


@pytest.mark.parametrize("words", ["twin qwen1.5-0.5b q4_0 -o", "decode x.gguf --engine"])
def test_a_name_that_no_file_can_have_is_a_usage_error(ggbench: Run, words: str) -> None:
    ran = ggbench(*words.split(), f"llama-server={'n' * 256}" if "--engine" in words else "n" * 256)
    assert ran.code == 2 and "Errno" not in ran.err


def test_ctrl_c_keeps_what_was_measured(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    def cancel_halfway(request: Request) -> Iterator[protocol.Message | Ending]:
        for number, item in enumerate(obey(request)):
            if isinstance(request, Decode) and request.n_gen == 1000 and number == 6:
                machine.cancel.set()
            yield item

    machine.answers = {0: cancel_halfway}
    ran = ggbench("decode", tiny_twin, "-n", "1000", "--json")
    assert ran.code == 130
    assert ran.json["outcome"] == Outcome.CANCELLED
    assert ran.json["n_gen"] == 500
    shown = ggbench("results", "show", "1", "--json")
    assert shown.json["outcome"] == "cancelled"
    assert shown.json["n_gen"] == 500


def test_an_interrupt_between_runs_is_no_success(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for quant in ("q8_0", "q4_0"):
        (tmp_path / f"model-{quant}.gguf").write_bytes(tiny_twin.read_bytes())

    monkeypatch.setattr(FakeWorker, "close", lambda _engine: machine.cancel.set())
    ran = ggbench("bench", tmp_path, "-n", "300", "--json")
    assert ran.code == 130
    assert [row["outcome"] for row in ran.json["rows"]] == ["completed"]


def test_a_folder_of_broken_files_is_exit_code_5(ggbench: Run, machine: FakeMachine, tmp_path: Path) -> None:
    for quant in ("q8_0", "q4_0"):
        (tmp_path / f"model-{quant}.gguf").write_bytes(b"GGUF but not really")
    assert ggbench("bench", tmp_path, "-n", "300").code == 5
