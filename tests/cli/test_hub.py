"""Models of the Hub by name: planned from their headers, downloaded after a yes, measured, and offline afterwards."""

import fnmatch
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench.commands import downloads
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.hub import download
from ggbench.hub.download import FileProgress
from ggbench.paths import hub_listings_dir, twins_dir, user_models_file
from tests.cli.conftest import FakeMachine, Run
from tests.conftest import TINY
from tests.fakes.hub import Hang, TestHub
from tests.fakes.projector import a_projector

CARD = ("--vram", "4GiB", "--bandwidth", "100GB/s")


def published(twin: Path, n_shards: int) -> dict[str, bytes]:
    """A twin as it would be published: with a tokenizer of a megabyte, and in that many shards."""
    file = read_model_file(twin)
    words = [f"word{number}" for number in range(1024)]
    metadata = {key: value for key, value in file.metadata.items() if not key.startswith("ggbench.")}
    metadata |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.merges": [f"merge{number} part{number}" for number in range(40_000)],
        "some.long.list": [1] * 5000,
    }
    files = {}
    for number in range(n_shards):
        split = {"split.no": number, "split.count": n_shards, "split.tensors.count": len(file.tensors)}
        own = {} if n_shards == 1 else split
        header = encode_header(own if number else metadata | own, file.tensors[number::n_shards])
        name = "m-q8_0.gguf" if n_shards == 1 else f"m-q8_0-{number + 1:05}-of-{n_shards:05}.gguf"
        files[name] = header.data.ljust(header.file_bytes, b"\0")
    return files


@pytest.mark.llama
@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_published_file_is_planned_from_afar_as_it_is_here(
    ggbench: Run, hub: TestHub, tiny_twin: Path, tmp_path: Path, n_shards: int
) -> None:
    hub.add_repo("org/real", files=published(tiny_twin, n_shards))
    for name, data in published(tiny_twin, 1).items():
        (tmp_path / name).write_bytes(data)
    [local] = ggbench("plan", tmp_path, *CARD, "--json").json["rows"]
    document = ggbench("plan", "hf:org/real", *CARD, "--json").json
    [remote] = document["rows"]
    total_bytes = sum(map(len, published(tiny_twin, n_shards).values()))
    assert (document["repo"], document["total_bytes"]) == ("org/real", total_bytes)
    assert local["planned_n_ctx"]
    apart = {"model", "provenance", "file", "command"} | ({"file_bytes"} if n_shards > 1 else set())
    assert {k: v for k, v in remote.items() if k not in apart} == {k: v for k, v in local.items() if k not in apart}
    [twin] = ggbench("plan", "twin:org/real", *CARD, "--json").json["rows"]
    assert twin["file_bytes"] < remote["file_bytes"] - 500_000
    assert twin["planned_n_ctx"] == remote["planned_n_ctx"]


@pytest.mark.llama
def test_a_gated_repo_may_show_what_it_holds(ggbench: Run, hub: TestHub, tiny_twin: Path) -> None:
    hub.add_repo("org/gated", files={"m-q8_0.gguf": tiny_twin, "m-q4_0.gguf": tiny_twin}, gated=True)
    assert ggbench("models", "org/gated").code == 0
    for args in (["plan", "org/gated"], ["decode", "org/gated", "q8_0"], ["pull", "org/gated", "q8_0"]):
        ran = ggbench(*args)
        assert (args, ran.code) == (args, 4)
        assert "accept them" in ran.err


@pytest.mark.llama
def test_a_header_that_lies_is_a_row_with_its_reason(ggbench: Run, hub: TestHub, tiny_twin: Path) -> None:
    whole = tiny_twin.read_bytes()
    hub.add_repo("org/lies", files={"m-q8_0.gguf": whole, "m-q4_0.gguf": whole[: len(whole) // 2]})
    ran = ggbench("plan", "org/lies", *CARD, "--json")
    assert ran.code == 0
    rows = {row["quant"]: row for row in ran.json["rows"]}
    assert rows["q8_0"]["fits"]
    assert (rows["q4_0"]["outcome"], rows["q4_0"]["fits"]) == ("failed", None)
    assert rows["q4_0"]["reason"]
    assert ggbench("plan", "org/lies", "q4_0", *CARD).code == 5


@pytest.mark.llama
def test_a_missing_shard_is_named(ggbench: Run, hub: TestHub, tiny_twin: Path, machine: FakeMachine) -> None:
    hub.add_repo("org/split", files={"m-q8_0-00001-of-00002.gguf": tiny_twin, "m-q4_0.gguf": tiny_twin.read_bytes()})
    rows = {row["quant"]: row for row in ggbench("plan", "org/split", *CARD, "--json").json["rows"]}
    assert "m-q8_0-00002-of-00002.gguf" in rows["q8_0"]["reason"]
    for command in ("plan", "decode", "pull"):
        ran = ggbench(command, "org/split", "q8_0")
        assert ran.code == 5
        assert "is missing m-q8_0-00002-of-00002.gguf" in ran.err
    assert machine.workers == []


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("org/nowhere", 4, "org/nowhere"), ("org/gated", 4, "hf auth login"), ("org/private", 4, "hf auth login"),
        ("org/there@no-such-branch", 4, "cannot find the revision"),
    ],
)  # fmt: skip
def test_a_repo_that_cannot_be_had(
    ggbench: Run, hub: TestHub, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, words: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_not_for_your_eyes")
    hub.add_repo("org/there", files={"m-q8_0.gguf": tiny_twin})
    hub.add_repo("org/gated", files={"m-q8_0.gguf": tiny_twin}, gated=True)
    hub.add_repo("org/private", files={"m-q8_0.gguf": tiny_twin}, private=True)
    listing = [] if name == "org/gated" else [["models", name]]
    for args in (["plan", name], ["pull", name, "q8_0"], ["decode", name, "q8_0"], *listing):
        ran = ggbench(*args)
        assert (args, ran.code) == (args, code)
        assert ran.err.splitlines()[-2].startswith("Error: ")
        assert ran.err.splitlines()[-1].startswith("Hint: ")
        assert words in ran.err
        assert ran.err.splitlines()[-2].count("org/there") <= 1
        assert "hf_not" not in ran.err


def test_an_ambiguous_quant_lists_candidates_with_sizes(ggbench: Run, hub: TestHub, tiny_twin: Path) -> None:
    hub.add_repo("org/two", files={"base-q8_0.gguf": tiny_twin, "chat-q8_0.gguf": tiny_twin.read_bytes() + b"1"})
    for args in (["decode", "org/two", "q8_0"], ["decode", "org/two"], ["pull", "org/two"], ["pull", "org/two:q8_0"]):
        ran = ggbench(*args)
        assert ran.code == 2
        assert "base-q8_0 (" in ran.err
        assert "chat-q8_0 (" in ran.err
        assert ran.err.count("iB)") == 2


def test_no_network_says_what_can_be_done(ggbench: Run, hub: TestHub, repo: str) -> None:
    hub.close()
    for args in (["plan", repo], ["pull", repo, "q8_0"], ["decode", repo, "q8_0"], ["models", repo]):
        ran = ggbench(*args)
        assert (args, ran.code) == (args, 4)
        assert "Hint: " in ran.err
    assert "twin:qwen1.5-7b" in ggbench("decode", "qwen1.5-7b", "q8_0").err
    assert "twin:qwen1.5-7b" in ggbench("decode", "Qwen/Qwen1.5-7B-Chat-GGUF", "q8_0", "--offline").err


@pytest.mark.llama
def test_files_that_are_here_need_no_listing(ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine) -> None:
    path = ggbench("pull", repo, "q8_0").out.rstrip("\n")
    shutil.rmtree(hub_listings_dir())
    hub.forget_requests()
    [row] = ggbench("plan", repo, *CARD, "--offline", "--json").json["rows"]
    assert (row["quant"], row["provenance"], row["file"]) == ("q8_0", "hub", path)
    assert ggbench("bench", repo, "-n", "300", "--offline", "--json").json["file"] == path
    assert ggbench("decode", f"twin:{repo}", "-n", "300", "--offline", "--json").json["provenance"] == "twin"
    assert ggbench("decode", repo, "q8_0", "-n", "300").code == 0
    assert ggbench("decode", repo, "bf16", "--offline").code == 4
    assert hub.requests == []


def test_a_catalog_model_means_the_files_of_its_repo(ggbench: Run, repo: str, machine: FakeMachine) -> None:
    shape = "\n".join(
        f"{key} = {value}"
        for key, value in {
            "architecture": '"qwen2"', "n_layer": 2, "n_embd": 256, "n_head": 4, "n_head_kv": 4, "n_ff": 512,
            "n_vocab": 1024, "n_ctx_train": 4096,
        }.items()
    )  # fmt: skip
    user_models_file().parent.mkdir(parents=True)
    user_models_file().write_text(
        f'[[model]]\nid = "tiny"\nrepo = "{repo}"\nfile_pattern = "tiny-{{quant}}.gguf"\nquants = ["q8_0"]\n{shape}\n'
        f'[[model]]\nid = "homeless"\n{shape}\n'
    )
    ran = ggbench("decode", "tiny", "q8_0", "-n", "300", "--json")
    assert ran.code == 0
    assert (ran.json["model"], ran.json["quant"], ran.json["provenance"]) == ("tiny", "q8_0", "hub")
    ran = ggbench("decode", "homeless", "q8_0")
    assert (ran.code, "twin:homeless" in ran.err) == (2, True)


@pytest.mark.llama
def test_a_twin_of_a_published_file(ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine) -> None:
    ran = ggbench("decode", f"twin:{repo}", "q8_0", "-n", "300", "--json")
    assert ran.code == 0
    assert (ran.json["model"], ran.json["quant"], ran.json["provenance"]) == (f"twin:{repo}", "q8_0", "twin")
    assert ran.json["command"].startswith(f"ggbench decode twin:{repo} q8_0 -n 300")
    assert Path(ran.json["file"]).parent == twins_dir()
    asked = len(hub.requests)
    assert ggbench("decode", f"twin:{repo}", "q8_0", "-n", "300", "--offline").code == 0
    [twin] = ggbench("plan", f"twin:{repo}", "q8_0", *CARD, "--json", "--offline").json["rows"]
    [real] = ggbench("plan", repo, "q8_0", *CARD, "--json", "--offline").json["rows"]
    assert (twin["provenance"], real["provenance"]) == ("twin", "hub")
    assert (twin["weight_bytes"], twin["planned_n_ctx"]) == (real["weight_bytes"], real["planned_n_ctx"])
    assert len(hub.requests) == asked


@pytest.mark.llama
def test_what_does_not_fit_is_not_downloaded(ggbench: Run, hub: TestHub, repo: str, tiny_twin: Path) -> None:
    ran = ggbench("maxctx", repo, "q8_0", "--memory-limit", "1MiB", "-t", "1")
    assert ran.code == 3
    assert "does not fit" in ran.err
    assert hub.sent_bytes() <= tiny_twin.stat().st_size


@pytest.mark.llama
def test_the_projector_of_a_repo_is_counted_by_its_header(ggbench: Run, hub: TestHub, tiny_twin: Path) -> None:
    projector = a_projector(n_embd=TINY.n_embd)
    hub.add_repo("org/seeing", {"seeing-q8_0.gguf": tiny_twin, "mmproj-BF16.gguf": b"", "mmproj-F16.gguf": projector})
    words = ("org/seeing", "q8_0", *CARD, "--mmproj", "auto", "--json")
    found = ggbench("plan", *words).json
    assert found["machine"]["mmproj_bytes"] == 4 << 20
    assert "--mmproj auto" in found["rows"][0]["command"]
    assert re.search(r"--mmproj-url \S+/mmproj-F16\.gguf ", ggbench("pick", *words).json["commands"]["llama_server"])
    assert ggbench("plan", *words, "--offline").json["machine"]["mmproj_bytes"] == 4 << 20
    hub.add_repo("org/wide", {"wide-q8_0.gguf": tiny_twin, "mmproj-F16.gguf": a_projector()})
    hub.add_repo("org/blind", {"blind-q8_0.gguf": tiny_twin})
    for repo, said in {"org/wide": "mmproj-F16.gguf is not a projector of", "org/blind": "no projector"}.items():
        refused = ggbench("plan", repo, "q8_0", *CARD, "--mmproj", "auto")
        assert (refused.code, refused.out, refused.err.count("\n")) == (5, "", 2)
        assert said in refused.err


def test_a_repo_is_listed(ggbench: Run, repo: str, machine: FakeMachine) -> None:
    ggbench("pull", repo, "q8_0")
    ran = ggbench("models", repo, "--why")
    assert ran.code == 0
    assert "mmproj-tiny-f16.gguf" in ran.out
    assert ggbench("models", repo, "--offline", "--why").out == ran.out
    assert ggbench("models", repo, "--offline", "--why").out == ran.out
    again = ggbench("models", f"https://huggingface.co/{repo}/tree/main", "--why").out
    listed_at = re.compile(r"T\d\d:\d\d:\d\d")
    assert listed_at.sub("", again) == listed_at.sub("", ran.out)
    document = ggbench("models", f"hf:{repo}", "--json").json
    assert [(row["quant"], bool(row["files"])) for row in document["rows"]] == [("bf16", False), ("q8_0", True)]
    assert len(document["listing"]["commit"]) == 40
    assert [each["path"] for each in document["listing"]["sidecars"]] == ["mmproj-tiny-f16.gguf"]


def test_repos_are_searched(ggbench: Run, repo: str) -> None:
    ran = ggbench("models", "--search", "tiny", "--json")
    assert [row["repo"] for row in ran.json["rows"]] == [repo]
    found = ggbench("models", "--search", "tiny")
    assert repo in found.out
    assert f"ggbench models {repo}\n" in found.out
    nothing = ggbench("models", "--search", "zzzz")
    assert (nothing.code, nothing.out.count("\n")) == (0, 1)
    offline = ggbench("models", "--search", "tiny", "--offline")
    assert (offline.code, "works offline" in offline.err) == (4, False)


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
    assert ggbench("prefill", repo, "q8_0", "--lengths", "1", "--offline").code == 0
    pasted = f"{hub.url}/{repo}/blob/main/tiny-q8_0.gguf"
    for model in (pasted, f"{repo}/tiny-q8_0.gguf"):
        ran = ggbench("decode", model, "-n", "300", "--offline", "--json")
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
@pytest.mark.parametrize("command", ["decode", "maxctx"])
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


def test_offline_forbids_a_download(ggbench: Run, hub: TestHub, repo: str, machine: FakeMachine) -> None:
    assert ggbench("models", repo).code == 0
    ran = ggbench("decode", repo, "q8_0", "--offline")
    assert (ran.code, "ggbench pull" in ran.err) == (4, True)
    assert machine.workers == []


def test_bench_without_quants_is_every_variant_and_offline_what_is_here(
    ggbench: Run, repo: str, machine: FakeMachine
) -> None:
    assert ggbench("decode", repo, "q8_0", "-n", "300").code == 0
    offline = ggbench("bench", repo, "-n", "300", "--offline", "--json")
    assert offline.json["quant"] == "q8_0"
    rows = ggbench("bench", repo, "-n", "300", "--json").json["rows"]
    assert [row["quant"] for row in rows] == ["bf16", "q8_0"]
