"""Downloads that a measuring command begins: asked for, shown, interrupted, forbidden, and kept for the next one."""

import fnmatch
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from ggbench.commands import downloads
from ggbench.hub import download
from ggbench.hub.download import FileProgress
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.hub import Hang, TestHub


def test_decode_downloads_and_the_next_one_asks_nothing(
    ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine
) -> None:
    ran = ggbench("decode", f"{repo}:q8_0", "-n", "300", "--yes", "--json")
    assert ran.code == 0
    assert f"{repo} q8_0 (" in ran.err
    assert "will be downloaded" in ran.err
    row = ran.json
    assert (row["model"], row["quant"], row["provenance"], row["outcome"]) == (repo, "q8_0", "hub", "completed")
    assert row["command"].startswith(f"ggbench decode {repo} q8_0 -n 300")
    asked = len(hub.requests)
    again = ggbench("decode", repo, "q8_0", "-n", "300", "--json")
    assert (again.code, again.json["file"]) == (0, row["file"])
    assert len(hub.requests) == asked
    assert ggbench("prefill", repo, "q8_0", "--lengths", "1", "--no-download", "--offline").code == 0
    pasted = f"{hub.url}/{repo}/blob/main/tiny-q8_0.gguf"
    for model in (pasted, f"{repo}/tiny-q8_0.gguf"):
        ran = ggbench("decode", model, "-n", "300", "--no-download", "--json")
        assert ran.json["command"].startswith(f"ggbench decode {repo} q8_0 -n 300")


def test_a_large_download_is_never_silent(
    ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "CONFIRM_ABOVE_BYTES", 1000)
    for command in ("decode", "prefill", "maxctx", "bench"):
        refused = ggbench(command, repo, "q8_0")
        assert refused.code == 2
        assert "--yes" in refused.err
        assert f"ggbench pull {repo} q8_0" in refused.err
    assert not any(fnmatch.fnmatch(request.path, "*tiny-q8_0.gguf") for request in hub.requests)
    assert ggbench("decode", repo, "q8_0", "-n", "300", "--yes").code == 0


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 130)])
def test_in_a_terminal_it_is_asked(
    ggbench: Run, repo: str, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(downloads, "CONFIRM_ABOVE_BYTES", 1000)
    monkeypatch.setattr(downloads, "can_ask", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    ran = ggbench("decode", repo, "q8_0", "-n", "300")
    assert ran.code == code
    assert len(asked) == 1
    assert "q8_0 (" in asked[0]
    assert "Error" not in ran.err
    assert (f"nothing was downloaded; ggbench plan {repo} shows what each quant needs" in ran.err) != answer
    assert bool(machine.workers) == answer


@pytest.mark.llama
@pytest.mark.parametrize("command", ["bench", "decode", "prefill", "maxctx"])
def test_an_interrupted_download_is_no_measurement(
    ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    real: Callable[..., tuple[Path, ...]] = download.download
    sent: list[int] = []

    def interrupted(*args: object, on_progress: Callable[[tuple[FileProgress, ...]], None]) -> tuple[Path, ...]:
        def progress(files: tuple[FileProgress, ...]) -> None:
            if not sent:  # another would leave at once
                sent.append(files[0].done_bytes)
                os.kill(os.getpid(), signal.SIGINT)
            on_progress(files)

        return real(*args, on_progress=progress)

    hub.fail("/cdn/*q8_0.gguf", Hang(after_bytes=1 << 20), times=None)
    monkeypatch.setattr(download, "download", interrupted)
    ran = ggbench(command, repo, "q8_0")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.endswith("interrupted; the downloaded part is kept, and the same command continues from there\n")
    assert len(machine.workers) == (command == "maxctx")  # its dry run, for which the header is enough

    def list_repo(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("ggbench.hub.listing.list_repo", list_repo)
    ran = ggbench(command, repo, "q8_0")
    assert (ran.code, ran.out) == (130, "")
    assert "the downloaded part is kept" in ran.err


def test_options_that_forbid_a_download(ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine) -> None:
    ran = ggbench("decode", repo, "q8_0", "--no-download")
    assert (ran.code, "ggbench pull" in ran.err) == (2, True)
    ran = ggbench("decode", repo, "q8_0", "--offline")
    assert (ran.code, "ggbench pull" in ran.err) == (4, True)
    assert machine.workers == []


def test_bench_without_quants_is_every_variant_and_offline_what_is_here(
    ggbench: Run, repo: str, machine: FakeMachine
) -> None:
    assert ggbench("decode", repo, "q8_0", "-n", "300").code == 0
    offline = ggbench("bench", repo, "-n", "300", "--offline", "--json")
    [row] = offline.json["rows"]
    assert row["quant"] == "q8_0"
    assert "1 of 2 quants are not on this disk: bf16\n" in offline.err
    assert "not on this disk" not in ggbench("bench", repo, "q8_0", "-n", "300", "--offline").err
    rows = ggbench("bench", repo, "-n", "300", "--json").json["rows"]
    assert [row["quant"] for row in rows] == ["bf16", "q8_0"]
