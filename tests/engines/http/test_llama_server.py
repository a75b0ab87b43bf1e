"""The user's own llama-server as an engine: what it is told, what is read from it, and every way in which it fails."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from msgspec.structs import replace

from ggbench.commands.measure_options import run_by
from ggbench.engines.contract import Continue, Decode, DecodeAtDepth, ProveContext, Source
from ggbench.engines.endings import Cancelled, Completed, Crashed, Ending, Failed, OutOfMemory, TimedOut
from ggbench.engines.events import (
    Allocated,
    ContextProven,
    Continued,
    Event,
    MemoryKind,
    Opened,
    PromptRead,
    Ready,
    ServerAnswered,
    Steps,
)
from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.http.engine import HttpEngine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.address_space import CAN_LIMIT
from tests.fakes.llama_server import N_DRAFTED, install

on_linux = pytest.mark.skipif(not CAN_LIMIT, reason="needs Linux's limits and /proc")
LLAMA = LlamaConfig(n_ctx=1280, threads=1, type_k="q8_0")


class Started:
    def __init__(self, folder: Path, file: Path) -> None:
        self.folder, self.source = folder, Source(file)
        self.cancel = threading.Event()
        self.engine = HttpEngine(self.cancel, timeout_s=60)

    def open(self, way: str = "", flags: str = "", setup: LlamaConfig = LLAMA) -> list[Event | Ending]:
        return list(self.engine.open(self.source, run_by(f"llama-server={install(self.folder, way)} {flags}", setup)))


@pytest.fixture
def started(tmp_path: Path, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setenv("FAKE_LLAMA_SERVER_FLAGS", str(tmp_path / "flags.json"))
    found = Started(tmp_path, tiny_twin)
    yield found
    found.engine.close()


_T = TypeVar("_T")


def _of(events: list[Event | Ending], kind: type[_T]) -> list[_T]:
    return [event for event in events if isinstance(event, kind)]


def _flags(started: Started) -> list[str]:
    """Return the flags that the last server was started with."""
    flags: list[str] = json.loads((started.folder / "flags.json").read_text())
    return flags


def _is_running(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def test_its_context_has_room_for_the_token_that_comes_with_the_prompt() -> None:
    settings = DecodeSettings(n_gen=256, depths=(512,))
    assert LlamaConfig().holding(settings.n_ctx_needed).n_ctx == 768
    assert LlamaServerConfig().holding(settings.n_ctx_needed).n_ctx == 1024
    assert LlamaServerConfig(n_ctx=768).holding(settings.n_ctx_needed).n_ctx == 768


def test_it_gets_the_flags_that_pick_prints_and_the_users_own_and_no_key_among_them(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    assert started.open(flags="-dev Vulkan0")[-1] == Completed()
    flags = _flags(started)
    loads = ["-m", flags[1], "-c", "1280", "-ctk", "q8_0", "-ngl", "999", "-t", "1", "-np", "1"]
    assert flags == [*loads, "--host", "127.0.0.1", "--port", "0", "-lv", "4", "-dev", "Vulkan0"]


def test_a_twin_gets_the_vocabulary_without_which_llama_server_aborts(started: Started) -> None:
    started.open()
    assert started.source.path is not None
    twin, served = (read_model_file(path) for path in (started.source.path, Path(_flags(started)[1])))
    assert served.metadata["tokenizer.ggml.model"] == "llama" and served.n_vocab == twin.n_vocab
    assert served.tensors == twin.tensors


def test_build_devices_and_buffers_are_read_from_its_log(started: Started) -> None:
    events = started.open()
    (ready,), (allocated,), (opened,) = _of(events, Ready), _of(events, Allocated), _of(events, Opened)
    assert ready.versions == {
        "llama_cpp": "0.5.0-dev",
        "llama_cpp_commit": "0c1e570",
        "build_flags": "GNU 12.2.0 for Linux x86_64",
        "system_info": "CPU : SSE3 = 1 | AVX2 = 1 |",
        "backends": "CPU Vulkan",
        "server": "llama-server 0.5.0-dev (build 1, commit 0c1e570)",
    }
    assert [(each.device, each.place) for each in allocated.buffers] == [
        ("Vulkan0", MemoryKind.GPU),
        ("CPU", MemoryKind.HOST),
    ]
    assert allocated.total("kv_bytes") == pytest.approx(28.12 * 2**20, rel=1e-3)
    assert (opened.n_ctx, opened.n_batch, opened.n_ubatch, allocated.flash_attn) == (1280, 1280, 512, True)
    assert len(_of(events, ServerAnswered)) == 1


def test_it_is_timed_by_its_own_clock_and_ends_with_the_engine(started: Started) -> None:
    ready = _of(started.open(), Ready)[0]
    *events, ending = started.engine.run(Decode(25, 10))
    (steps,), (prompt,) = _of(events, Steps), _of(events, PromptRead)
    assert ending == Completed()
    assert (steps.clock, steps.first_position, steps.step_ns) == ("server", 26, [10_000_000] * 10)
    assert (prompt.n_prompt, prompt.elapsed_ns) == (25, 25_000_000)
    assert _is_running(ready.pid)
    started.engine.close()
    started.engine.close()
    assert not _is_running(ready.pid)


def test_the_first_step_at_a_depth_has_the_position_that_ggbenchs_own_engine_gives_it(started: Started) -> None:
    started.open()
    *events, ending = started.engine.run(DecodeAtDepth(100, 4))
    assert ending == Completed() and not _of(events, PromptRead)
    assert [(each.first_position, len(each.step_ns)) for each in _of(events, Steps)] == [(102, 4)]


def test_a_context_is_proven_at_the_end_of_every_slot(started: Started) -> None:
    """llama-server leaves the last cell of a slot free, so a prompt of 638 tokens and one step fill a slot of 640."""
    started.open(setup=replace(LLAMA, n_seq_max=2))
    *events, ending = started.engine.run(ProveContext())
    assert ending == Completed(), ending
    assert _of(events, ContextProven) == [ContextProven(full=True)]


def test_its_memory_cannot_be_limited() -> None:
    with pytest.raises(UsageError, match="cannot limit the memory of llama-server"):
        LlamaServerConfig(memory_limit_bytes=1 << 30).check()


@pytest.mark.parametrize(
    ("way", "kind", "reason"),
    [
        ("no model", Crashed, "llama-server ended with exit status 1: error loading model: llama_model"),
        ("unknown flag", Failed, "refuses an option: invalid argument: -lm"),
        ("another cpu", Crashed, "llama-server was killed by SIGILL"),
    ],
)  # fmt: skip
def test_a_server_that_does_not_start_is_an_ending_with_its_cause(
    started: Started, way: str, kind: type[Ending], reason: str
) -> None:
    ending = started.open(way)[-1]
    assert isinstance(ending, kind) and reason in ending.reason and "\n" not in ending.reason


def test_a_silent_server_is_stopped(started: Started) -> None:
    started.engine = HttpEngine(started.cancel, timeout_s=0.5)
    *events, ending = started.open("silent")
    assert ending == TimedOut(0.5, "llama-server")
    assert not _is_running(_of(events, Ready)[0].pid)


def test_cancelling_stops_a_server_that_loads(started: Started) -> None:
    started.cancel.set()
    *events, ending = started.open("silent")
    assert ending == Cancelled() and not _is_running(_of(events, Ready)[0].pid)


def test_a_flood_of_its_log_does_not_block_it(started: Started) -> None:
    assert started.open("floods")[-1] == Completed()


def test_a_death_in_the_middle_is_a_crash_by_its_signal_and_it_starts_again(started: Started) -> None:
    started.open("dies")
    *events, ending = started.engine.run(Decode(25, 100))
    assert isinstance(ending, Crashed) and "llama-server was killed by SIGSEGV" in ending.reason
    assert sum(len(each.step_ns) for each in _of(events, Steps)) > 0
    assert started.open()[-1] == Completed()


def test_a_server_that_lacks_memory_for_a_request_is_out_of_memory(started: Started) -> None:
    started.open("no room")
    ending = [*started.engine.run(ProveContext())][-1]
    assert isinstance(ending, OutOfMemory) and ending.alive and "bad_alloc" in ending.message


def test_a_hang_in_the_middle_is_timed_out(started: Started) -> None:
    started.engine = HttpEngine(started.cancel, timeout_s=5)
    started.open("hangs")
    assert isinstance([*started.engine.run(Decode(25, 100))][-1], TimedOut)


def test_a_server_without_timings_is_too_old(started: Started) -> None:
    started.open("untimed")
    ending = [*started.engine.run(Decode(25, 10))][-1]
    assert isinstance(ending, Failed) and "too old" in ending.reason


@on_linux
def test_an_rpc_server_that_does_not_answer_is_named_before_the_program_aborts(started: Started) -> None:
    nowhere = "127.0.0.1:9"
    [failed] = started.open(setup=LlamaConfig(n_ctx=256, rpc_servers=(nowhere,)))
    assert isinstance(failed, Failed) and f"RPC server {nowhere} refuses connections" in failed.reason
    assert isinstance(started.open(flags=f"--rpc {nowhere}")[-1], Failed)


_PARENT = """
import sys, threading, time
from pathlib import Path
from ggbench.commands.measure_options import run_by
from ggbench.engines.contract import Source
from ggbench.engines.events import Ready
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.http.engine import HttpEngine
engine = HttpEngine(threading.Event(), timeout_s=60)
for event in engine.open(Source(Path(sys.argv[2])), run_by("llama-server=" + sys.argv[1], LlamaConfig(n_ctx=256))):
    if isinstance(event, Ready):
        print(event.pid, flush=True)
time.sleep(60)
"""


@on_linux
@pytest.mark.parametrize("victim", ["ggbench", "the keeper"])
def test_the_server_ends_when_ggbench_is_killed(victim: str, tmp_path: Path, tiny_twin: Path) -> None:
    """The kernel ends it, whether the parent or the process in between is killed."""
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", _PARENT, str(install(tmp_path)), str(tiny_twin)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    status = Path(f"/proc/{pid}/status").read_text()
    keeper = int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
    server = os.pidfd_open(pid)
    os.kill(parent.pid if victim == "ggbench" else keeper, signal.SIGKILL)
    assert select.select([server], [], [], 20)[0]  # readable once it has ended
    os.close(server)
    parent.kill()
    parent.wait()
    parent.stdout.close()


@on_linux
@pytest.mark.parametrize("victim", ["", "the keeper"])
def test_a_script_that_starts_the_server_is_measured_and_ended_as_a_whole(victim: str, started: Started) -> None:
    """The server is neither its shell nor, behind setsid, in its session."""
    script = started.folder / "script.sh"
    command = f"'{install(started.folder)}'"
    start = command if victim else f"setsid {command}"
    script.write_text(f'#!/bin/sh\n{start} "$@"\nexit $?\n')
    script.chmod(0o755)
    events = list(started.engine.open(started.source, run_by(f"llama-server={script}", LLAMA)))
    assert events[-1] == Completed()
    (ready,) = _of(events, Ready)
    assert ready.pid is not None and b"--port" in Path(f"/proc/{ready.pid}/cmdline").read_bytes()
    assert b"tests.fakes.llama_server" in Path(f"/proc/{ready.pid}/cmdline").read_bytes()
    if victim:
        psutil.Process(ready.pid).parents()[1].kill()
    server = os.pidfd_open(ready.pid)
    started.engine.close()
    assert select.select([server], [], [], 20)[0]  # readable once it has ended
    os.close(server)


def test_a_log_without_end_is_no_sign_of_life(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.http.process._MAX_LOG_BYTES", 1 << 20)
    started.engine = HttpEngine(started.cancel, timeout_s=0.3)
    assert started.open("floods on")[-1] == TimedOut(0.3, "llama-server")


def _drafting(started: Started, way: str = "", **changes: object) -> list[Event | Ending]:
    setup = replace(run_by(f"llama-server={install(started.folder, way)}", LLAMA), **changes)
    return list(started.engine.open(replace(started.source, draft=started.source.path), setup))


def test_a_draft_is_given_as_its_file_with_a_vocabulary_and_its_steps_are_counted(started: Started) -> None:
    opened = _drafting(started, spec_type="draft-simple", n_draft=4)
    assert opened[-1] == Completed()
    flags = _flags(started)
    words = ["-md", flags[1], "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]
    assert " ".join(words) in " ".join(flags)
    for _ in range(2):
        answered, ending = started.engine.run(Continue("Tell me.", 10))
        assert ending == Completed()
        assert answered == Continued(10, 45_000_000, N_DRAFTED, N_DRAFTED // 2)


def test_an_answer_without_drafts_has_no_counts(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no steps either, however long it takes: it is timed as a whole."""
    monkeypatch.setattr("ggbench.engines.http.request.FLUSH_NS", -1)
    started.open()
    answered, ending = started.engine.run(Continue("Tell me.", 10))
    assert (answered, ending) == (Continued(10, 90_000_000), Completed())


@pytest.mark.parametrize(
    ("way", "spec_type", "what", "hint"),
    [
        ("", "ngram-mod", "unknown speculative type: ngram-mod", "omit the option"),
        ("older", "draft-simple", "invalid argument: --spec-type", "update it"),
        ("no drafts", "draft-simple", "vocab type must match", "the same vocabulary"),
    ],
)
def test_a_server_that_cannot_draft_says_why_and_ends(
    started: Started, way: str, spec_type: str, what: str, hint: str
) -> None:
    *events, ending = _drafting(started, way, spec_type=spec_type)
    assert isinstance(ending, Failed) and isinstance(ending.error, UsageError)
    assert what in ending.message and hint in (ending.error.hint or "")
    assert not any(_is_running(each.pid) for each in _of(events, Ready))
