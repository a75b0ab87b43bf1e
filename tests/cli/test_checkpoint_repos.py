"""`tf:org/name` on the command line, from the local test Hub: planned, inspected, downloaded and measured."""

from pathlib import Path

import pytest

from ggbench.engines.endings import Outcome
from tests.cli.conftest import Run
from tests.fakes.checkpoints import GPTQ, QWEN2_TINY, write_checkpoint
from tests.fakes.hub import TestHub

NAMES = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
NAMES += ["model.safetensors.index.json"]


@pytest.fixture
def repo(hub: TestHub, tmp_path: Path) -> str:
    folder = write_checkpoint(tmp_path / "made", QWEN2_TINY, n_shards=2)
    hub.add_repo("org/tiny", {**{path.name: path for path in folder.iterdir()}, "README.md": b"words"})
    return "tf:org/tiny"


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.transformers.engine.check_packages", lambda method: None)


@pytest.mark.usefixtures("machine")
def test_a_repo_is_planned_pulled_and_measured(ggbench: Run, hub: TestHub, repo: str) -> None:
    plan = ggbench("plan", repo, "bf16", "--vram", "24GiB", "--json").json["rows"][0]
    assert hub.sent_bytes("*.safetensors") == 0
    pulled = ggbench("pull", repo)
    assert pulled.code == 0
    paths = [Path(line) for line in pulled.out.splitlines()]
    assert [path.name for path in paths] == NAMES
    assert "[1/1] org/tiny checkpoint: " in pulled.err and "sha256 verified" in pulled.err
    hub.forget_requests()
    run = ggbench("decode", repo, "-n", "300", "--json").json
    assert not hub.requests
    assert (run["model"], run["quant"], run["outcome"]) == (repo, "bf16", Outcome.COMPLETED)
    assert (run["file"], run["weight_bytes"]) == (str(paths[0].parent), plan["weight_bytes"])
    assert "already on this disk" in ggbench("pull", repo, "--offline").err


@pytest.mark.usefixtures("machine")
def test_a_repo_that_is_not_here_is_downloaded_by_decode(ggbench: Run, repo: str) -> None:
    refused = ggbench("decode", repo, "-n", "300", "--no-download")
    assert refused.code != 0 and "Traceback" not in refused.err
    assert ggbench("decode", repo, "nf4", "-n", "300", "--json").json["quant"] == "nf4"


def test_inspect_shows_the_method_that_is_named(ggbench: Run, hub: TestHub, repo: str, tmp_path: Path) -> None:
    stored = ggbench("inspect", repo, "--json").json
    nf4 = ggbench("inspect", f"{repo}:nf4", "--json", "--tensors").json
    assert (stored["quant"], nf4["quant"]) == ("bf16", "nf4")
    by_name = {each["quant"]: each["weight_bytes"] for each in stored["methods"]}
    assert (stored["weight_bytes"], nf4["weight_bytes"]) == (by_name["bf16"], by_name["nf4"])
    assert sum(each["n_bytes"] for each in nf4["tensors"]) == nf4["weight_bytes"]
    assert "org/tiny  nf4" in ggbench("inspect", f"{repo}:nf4").out
    folder = write_checkpoint(tmp_path / "gptq", {**QWEN2_TINY, "quantization_config": GPTQ}, "gptq-int4")
    hub.add_repo("org/tiny-GPTQ", {path.name: path for path in folder.iterdir()})
    wrong = ggbench("inspect", "tf:org/tiny-GPTQ:nf4")
    assert wrong.code == 2
    assert "is stored as gptq-int4, and nf4 was asked for" in wrong.err
    assert ggbench("inspect", f"{repo}:q4_k_m").code == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["tf:org/tiny", "nf4"], "a checkpoint is downloaded as it is stored"),
        (["tf:org/tiny:nf4"], "Hint: omit nf4"),
        (["tf:."], "tf:. is a path"),
        (["synth-tf:qwen1.5-0.5b"], "synth-tf:qwen1.5-0.5b is a twin"),
    ],
)
def test_what_pull_does_not_take_is_named(ggbench: Run, words: list[str], what: str) -> None:
    ran = ggbench("pull", *words)
    assert ran.code == 2
    assert what in ran.err
