"""Checkpoints on the command line: plans with the fields of a GGUF, options that go with them, and bad input."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from ggbench.engines.endings import Outcome
from tests.cli.conftest import Run
from tests.fakes.checkpoints import QWEN2_TINY, write_checkpoint
from tests.fakes.hub import TestHub

CARD = ("--vram", "24GiB", "--bandwidth", "1008GB/s")
QWEN_7B = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "vocab_size": 151936, "max_position_embeddings": 32768,
}  # fmt: skip


def config_only(folder: Path, **changes: object) -> str:
    """Write a config.json without weights; return the MODEL that names it."""
    (folder / "config.json").write_text(json.dumps({**QWEN2_TINY, **changes}))
    return f"transformers:{folder}"


@pytest.fixture
def qwen_7b(tmp_path: Path) -> str:
    return config_only(tmp_path, **QWEN_7B)


def test_a_plan_has_the_fields_of_a_gguf(ggbench: Run, qwen_7b: str) -> None:
    ran = ggbench("plan", qwen_7b, "--gpu", "rtx-4090", "--json")
    assert ran.code == 0
    rows = {row["quant"]: row for row in ran.json["rows"]}
    assert list(rows) == ["bf16", "f16", "f32", "int8", "nf4", "nf4-dq"]
    assert rows["bf16"]["weight_bytes"] == 2 * 7_721_324_544
    assert (rows["bf16"]["type_k"], rows["f32"]["type_k"]) == ("bf16", "f32")
    assert rows["f32"]["kv_bytes_per_token"] == 2 * rows["bf16"]["kv_bytes_per_token"] == 2 * 2**19
    assert (rows["bf16"]["fits"], rows["f32"]["fits"]) == (True, False)
    for row in rows.values():
        assert row["engine"] == "transformers"
        assert row["device_weight_bytes"] == row["weight_bytes"]
        assert row["needed_bytes"] == row["weight_bytes"] + row["kv_bytes"] == row["budget_bytes"] - row["left_bytes"]
        assert row["provenance"] == "file"
        assert row["command"].startswith(f"ggbench plan {qwen_7b} {row['quant']}")
    read = rows["nf4"]["weight_bytes"] - 2 * 151936 * 4096  # the embedding, of which a token reads one row
    n_ctx = rows["nf4"]["n_ctx"]
    assert rows["nf4"]["limit_tok_s"] == pytest.approx(1008e9 / (read + n_ctx * 2**19))


def test_the_longest_context_is_what_the_weights_leave(ggbench: Run, qwen_7b: str) -> None:
    [row] = ggbench("plan", qwen_7b, "int8", *CARD, "--reserve", "0", "--json").json["rows"]
    assert row["planned_n_ctx"] == (24 * 2**30 - row["weight_bytes"]) // row["kv_bytes_per_token"]
    ran = ggbench("plan", qwen_7b, "bf16", *CARD, "--memory-limit", "10GiB")
    assert ran.code == 3


def test_a_method_that_does_not_go_is_a_row_with_its_reason(ggbench: Run, tmp_path: Path) -> None:
    narrow = config_only(tmp_path, hidden_size=192, num_attention_heads=3, num_key_value_heads=3)
    ran = ggbench("plan", narrow, "nf4", "gptq-int4", *CARD, "--json")
    nf4, gptq = ran.json["rows"]
    assert ran.code == 0
    assert (nf4["outcome"], nf4["fits"]) == ("completed", True)
    assert (gptq["outcome"], gptq["bpw"]) == ("failed", None)
    assert gptq["reason"].endswith("of 192 x 192 cannot be packed in groups of 128")
    assert ggbench("plan", narrow, "gptq-int4", *CARD).code == 5


@pytest.mark.parametrize(
    ("words", "code", "what", "hint"),
    [
        (["plan", "transformers:{}", "q4_k_m"], 2, "no quant of a checkpoint named 'q4_k_m'", "nf4"),
        (["plan", "transformers:{}", "-ncmoe", "4"], 2, "--n-cpu-moe is an option of llama.cpp", ""),
        (["plan", "transformers:./nowhere"], 5, "nowhere has no config.json", "folder of a checkpoint"),
        (["pull", "transformers:org/name"], 2, "pull downloads GGUF files", "hf:org/name"),
        (["plan", "transformers:nowhere"], 2, "neither a folder nor org/name", "transformers:FOLDER"),
        (["plan", "transformers:org/name", "--offline"], 4, "offline mode is on", "without --offline"),
        (["pick", "transformers:{}"], 2, "this command needs a GGUF file", "transformers:"),
        (["tune", "transformers:{}", "bf16"], 2, "Transformers cannot", "give a GGUF"),
        (
            ["decode", "twin:qwen1.5-0.5b", "q4_0", "--attention", "eager"],
            2,
            "--attention is only for a checkpoint",
            "",
        ),
    ],
)
def test_bad_input_is_two_lines(
    ggbench: Run, tmp_path: Path, words: list[str], code: int, what: str, hint: str
) -> None:
    config_only(tmp_path)
    ran = ggbench(*(word.format(tmp_path) for word in words))
    assert ran.code == code, ran.err
    assert what in ran.err
    assert hint in ran.err
    assert "Traceback" not in ran.err


NAMES = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
NAMES += ["model.safetensors.index.json"]


@pytest.fixture
def repo(hub: TestHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("ggbench.extras.transformers.engine.check_packages", lambda method: None)
    folder = write_checkpoint(tmp_path / "made", QWEN2_TINY, n_shards=2)
    hub.add_repo("org/tiny", {**{path.name: path for path in folder.iterdir()}, "README.md": b"words"})
    return "transformers:org/tiny"


@pytest.mark.usefixtures("machine")
def test_a_repo_is_planned_and_measured(ggbench: Run, hub: TestHub, repo: str) -> None:
    plan = ggbench("plan", repo, "bf16", "--vram", "24GiB", "--json").json["rows"][0]
    assert hub.sent_bytes("*.safetensors") == 0
    run = ggbench("decode", repo, "-n", "300", "--json").json
    assert (run["model"], run["quant"], run["outcome"]) == (repo, "bf16", Outcome.COMPLETED)
    assert sorted(path.name for path in Path(run["file"]).iterdir()) == NAMES
    assert run["weight_bytes"] == plan["weight_bytes"]
    hub.forget_requests()
    assert ggbench("decode", repo, "-n", "300").code == 0
    assert not hub.requests


@pytest.mark.usefixtures("machine")
def test_a_repo_that_is_not_here_is_downloaded_by_decode(ggbench: Run, repo: str) -> None:
    refused = ggbench("decode", repo, "-n", "300", "--offline")
    assert refused.code != 0 and "Traceback" not in refused.err
    assert ggbench("decode", repo, "nf4", "-n", "300", "--json").json["quant"] == "nf4"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"torch": "2.13.0", "transformers": "5.23.0", "accelerate": "1.15.0", "safetensors": "0.8.0"}
    real = metadata.version

    def version(name: str) -> str:
        if name not in found and name in ("torch", "transformers", "bitsandbytes", "gptqmodel"):
            raise metadata.PackageNotFoundError(name)
        return found.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)
    return found


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-ctk", "q8_0", "-ngl", "0"], "--type-k, --n-gpu-layers are for a GGUF, and Transformers loads"),
        (["--api-key-env", "KEY"], "--api-key-env is only for a server"),
        (["-c", "10"], "n_ctx 10 is too small for the 525 tokens of this run"),
    ],
)
def test_options_that_do_not_go_with_a_checkpoint_are_named(
    ggbench: Run, tmp_path: Path, options: list[str], line: str
) -> None:
    ran = ggbench("decode", config_only(tmp_path), "-n", "500", *options)
    assert ran.code == 2
    assert line in ran.err


def test_missing_packages_are_named_before_anything_is_loaded(
    ggbench: Run, tmp_path: Path, packages: dict[str, str]
) -> None:
    del packages["torch"]
    packages["transformers"] = "4.57.1"
    ran = ggbench("decode", config_only(tmp_path), "-n", "500")
    assert ran.code == 6
    assert "torch, transformers 4.57.1 (5.0 or later)" in ran.err
    assert "pip install 'ggbench[transformers]'" in ran.err


@pytest.mark.usefixtures("packages")
def test_code_of_a_checkpoint_is_refused_by_name(ggbench: Run, tmp_path: Path) -> None:
    code_of = {"auto_map": {"AutoModelForCausalLM": "modeling_own.OwnModel"}}
    ran = ggbench("decode", config_only(tmp_path, **code_of), "-n", "500")
    assert (ran.code, "modeling_own.py" in ran.err, "--trust-remote-code" in ran.err) == (5, True, True)
