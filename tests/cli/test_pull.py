"""`ggbench pull`: what is printed, where files land, and what is refused."""

import hashlib
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from ggbench.hub import download
from ggbench.hub.access import HubAccess
from ggbench.hub.download import FileProgress
from ggbench.hub.part_file import PART_SUFFIX
from ggbench.hub.repo_records import repo_folder
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.hub import Hang, TestHub


@pytest.fixture
def repo(hub: TestHub, tiny_twin: Path) -> str:
    hub.add_repo(
        "org/tiny-GGUF", files={"tiny-q8_0.gguf": tiny_twin, "more/tiny-bf16.gguf": tiny_twin.read_bytes() + bytes(64)}
    )
    return "org/tiny-GGUF"


def leave_part(repo: str, file: Path) -> None:
    """Write the first MiB of a file, as an interrupted pull leaves it."""
    content = file.read_bytes()
    blobs = repo_folder(HubAccess.from_environment(), repo) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(content).hexdigest()}{PART_SUFFIX}").write_bytes(content[: 1 << 20])


def test_pull_prints_the_path_and_decode_asks_nothing(
    ggbench: Run, hub: TestHub, repo: str, tiny_twin: Path, machine: FakeMachine
) -> None:
    ran = ggbench("pull", repo, "q8_0")
    assert ran.code == 0
    path = Path(ran.out.rstrip("\n"))
    assert path.read_bytes() == tiny_twin.read_bytes()
    assert "sha256 verified" in ran.err
    asked = len(hub.requests)
    assert ggbench("decode", repo, "q8_0", "-n", "300", "--json").json["file"] == str(path)
    assert len(hub.requests) == asked


def test_each_file_says_how_it_came(ggbench: Run, repo: str, tiny_twin: Path) -> None:
    size = tiny_twin.stat().st_size
    leave_part(repo, tiny_twin)
    assert re.search(r"^q8_0 .* 53 % ", ggbench("models", repo).out, re.MULTILINE)
    rows = ggbench("models", repo, "--json").json["rows"]
    assert [(row["quant"], row["here_bytes"], row["files"]) for row in rows] == [("bf16", 0, []), ("q8_0", 1 << 20, [])]

    def pulled() -> tuple[int, str]:
        ran = ggbench("pull", repo, "q8_0", "--json")
        [file] = ran.json["rows"][0]["files"]
        return file["moved_bytes"], ran.err

    moved_bytes, said = pulled()
    assert (moved_bytes, "sha256 verified" in said) == (size - (1 << 20), True)
    moved_bytes, said = pulled()
    assert (moved_bytes, "already on this disk" in said) == (0, True)


def test_without_a_quant_the_choice_is_listed(ggbench: Run, hub: TestHub, repo: str, tiny_twin: Path) -> None:
    ran = ggbench("pull", repo)
    assert (ran.code, "q8_0 (" in ran.err, "bf16 (" in ran.err) == (2, True, True)
    hub.add_repo("org/one", files={"m-q8_0.gguf": tiny_twin})
    assert ggbench("pull", "org/one").code == 0


def test_a_disk_that_has_no_room_or_refuses(
    ggbench: Run, hub: TestHub, repo: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 20))
        ran = ggbench("pull", repo, "q8_0")
    assert (ran.code, "free, and the download needs" in ran.err) == (3, True)
    (home / "huggingface").write_text("a file where the cache should be")
    ran = ggbench("pull", repo, "q8_0")
    assert (ran.code, "cannot write to" in ran.err, "HF_HUB_CACHE" in ran.err) == (2, True, True)
    assert hub.sent_bytes() == 0


def test_an_interrupted_pull_says_that_it_goes_on(
    ggbench: Run, hub: TestHub, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., tuple[Path, ...]] = download.download

    def interrupted(*args: object, on_progress: Callable[..., None], **options: object) -> tuple[Path, ...]:
        def on_part(files: tuple[FileProgress, ...]) -> None:
            signal.raise_signal(signal.SIGINT)
            on_progress(files)

        return real(*args, on_progress=on_part, **options)

    hub.fail("/cdn/*q8_0.gguf", Hang(after_bytes=1 << 20))
    with monkeypatch.context() as patch:
        patch.setattr(download, "download", interrupted)
        ran = ggbench("pull", repo, "q8_0")
    assert ran.code == 130
    assert ran.out == ""
    assert "kept" in ran.err
    sent = hub.sent_bytes()
    again = ggbench("pull", repo, "q8_0")
    assert again.code == 0
    assert 0 < hub.sent_bytes() - sent < Path(again.out.rstrip("\n")).stat().st_size

    def list_repo(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("ggbench.hub.listing.list_repo", list_repo)
    ran = ggbench("pull", repo, "q8_0")
    assert (ran.code, ran.out, "kept" in ran.err) == (130, "", True)


def test_several_quants_arrive_each_with_its_hash(ggbench: Run, repo: str) -> None:
    rows = ggbench("pull", f"hf:{repo}", "bf16", "q8_0", "--json").json["rows"]
    assert [row["quant"] for row in rows] == ["bf16", "q8_0"]
    paths = [path for row in rows for path in row["paths"]]
    for path, row in zip(paths, rows, strict=True):
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == row["files"][0]["file"]["sha256"]


@pytest.mark.parametrize("model", ["twin:qwen1.5-7b", "twin:org/name", "./m"])
def test_what_cannot_be_pulled_says_what_to_do(ggbench: Run, model: str) -> None:
    """Twins are made, and a path is here."""
    ran = ggbench("pull", model, "q8_0")
    assert (ran.code, ran.err.count("\nHint: ")) == (2, 1)
