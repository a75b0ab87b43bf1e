"""`ggbench models`: the catalog, this disk, a folder, and a blob checked against its name."""

import hashlib
from pathlib import Path

import pytest

from ggbench import __version__, paths
from ggbench.models.catalog import load_catalog
from ggbench.units import format_bytes
from tests.cli.conftest import Run
from tests.fakes.hub import Corrupt, TestHub
from tests.fakes.model_stores import gguf_bytes, hide_model_stores, put_in_hub_cache, put_in_ollama

no_system_folders = pytest.fixture(autouse=True)(hide_model_stores)


@pytest.fixture
def lm_studio(home: Path) -> Path:
    folder = home / ".lmstudio/models/publisher/My Repo"
    folder.mkdir(parents=True)
    return folder


def test_this_disk_is_listed(ggbench: Run, home: Path, lm_studio: Path) -> None:
    put_in_hub_cache(home / "cache/huggingface/hub", "org/repo", "m-q8_0.gguf", gguf_bytes())
    (lm_studio / "it's-q4_0.gguf").write_bytes(gguf_bytes())
    put_in_ollama(home / ".ollama/models", gguf_bytes("llama"), file_type="Q6_K")
    ran = ggbench("models")
    lines = ran.out.splitlines()
    assert " in the catalog, 3 models (" in lines[0]
    assert any(line.startswith("Hugging Face  q8_0") and line.endswith("  org/repo") for line in lines)
    assert any(line.endswith("""~/'.lmstudio/models/publisher/My Repo/it'"'"'s-q4_0.gguf'""") for line in lines)
    assert any(
        line.startswith("Ollama        q6_k") and "  llama3.2:1b  ~/.ollama/models/blobs" in line for line in lines
    )


def test_a_disk_without_models_says_what_to_do(ggbench: Run) -> None:
    ran = ggbench("models")
    assert (ran.code, ran.out.splitlines()[1]) == (0, "ggbench pick")
    assert "none on this disk" in ran.out
    assert ggbench("models", "--json").json["files"] == []


def test_names_that_would_steer_the_terminal_are_defused(ggbench: Run, lm_studio: Path) -> None:
    """The table defuses them; JSON escapes them, so that programs find the file."""
    path = lm_studio / "red\x1b[31m\u202e[bold]-q8_0.gguf"
    path.write_bytes(gguf_bytes("\x1b[2Jevil"))
    shown = ggbench("models", "--dir", lm_studio).out
    assert "red[31m[bold]-q8_0.gguf" in shown
    assert all(line.isprintable() for line in shown.splitlines())
    (row,) = ggbench("models", "--dir", lm_studio, "--json").json["rows"]
    assert row["paths"] == [str(path)]


def test_a_projector_in_a_folder_is_no_model(ggbench: Run, tmp_path: Path) -> None:
    (tmp_path / "mmproj-m-f16.gguf").write_bytes(gguf_bytes())
    assert "No GGUF model in or below " in ggbench("models", "--dir", tmp_path).out
    (tmp_path / "m-q8_0.gguf").write_bytes(gguf_bytes())
    assert [each["name"] for each in ggbench("models", "--dir", tmp_path, "--json").json["rows"]] == ["m-q8_0"]


def test_a_blob_that_is_whole_is_verified(ggbench: Run, home: Path) -> None:
    link = put_in_hub_cache(home / "cache/huggingface/hub", "org/repo", "m-q8_0.gguf", gguf_bytes())
    blob = put_in_ollama(home / ".ollama/models", gguf_bytes())
    for path in (link, blob):
        ran = ggbench("models", "--verify", path)
        assert ran.code == 0
        assert hashlib.sha256(gguf_bytes()).hexdigest() in ran.out


def test_a_blob_that_is_damaged_ends_with_5(ggbench: Run, home: Path) -> None:
    blob = put_in_ollama(home / ".ollama/models", gguf_bytes())
    blob.write_bytes(b"something else")
    ran = ggbench("models", "--verify", blob, "--json")
    assert ran.code == 5
    assert ran.json["matches"] is False
    assert ran.json["sha256_expected"] == blob.name.removeprefix("sha256-")
    assert ran.json["sha256_found"] == hashlib.sha256(b"something else").hexdigest()
    assert "damaged" in ran.err


def test_a_file_with_no_hash_in_its_name_cannot_be_verified(ggbench: Run, lm_studio: Path) -> None:
    path = lm_studio / "m-q8_0.gguf"
    path.write_bytes(gguf_bytes())
    ran = ggbench("models", "--verify", path)
    assert ran.code == 2
    assert hashlib.sha256(gguf_bytes()).hexdigest() in ran.err


def test_words_filter_the_catalog_and_the_disk(ggbench: Run, lm_studio: Path) -> None:
    (lm_studio / "Gemma-Tune-q8_0.gguf").write_bytes(gguf_bytes())
    document = ggbench("models", "GEMMA", "--json").json
    assert {row["id"].partition("-")[0] for row in document["rows"]} == {"gemma"}
    assert [each["name"] for each in document["files"]] == ["Gemma-Tune-q8_0"]
    assert [row["id"] for row in ggbench("models", "gemma", "a4b", "--json").json["rows"]] == ["gemma-4-26b-a4b"]
    assert "--search hal9000" in ggbench("models", "hal9000").out
    assert ggbench("models", "gemma", "--dir", lm_studio).code == 2


UPDATE = """\
[[model]]
id = "qwen1.5-7b"
repo = "me/mirror"
quants = ["q4_k_m"]

[[model]]
id = "next-1b"
architecture = "llama"
n_layer = 16
n_embd = 2048
n_head = 32
n_head_kv = 8
n_ff = 8192
n_vocab = 128256
n_ctx_train = 131072
"""


def test_an_update_lies_between_the_shipped_catalog_and_the_users_own(ggbench: Run, tmp_path: Path) -> None:
    file, own, landed = tmp_path / "newer.toml", paths.user_models_file(), paths.updated_models_file()
    file.write_text(UPDATE)
    own.parent.mkdir(parents=True)
    own.write_text('[[model]]\nid = "qwen1.5-7b"\ntitle = "Mine"\n')
    document = ggbench("models", "--update", file, "--json").json
    assert (document["added"], document["changed"], document["file"]) == (["next-1b"], ["qwen1.5-7b"], str(landed))
    model = load_catalog().model("qwen1.5-7b")
    assert (model.title, model.repo, model.origin) == ("Mine", "me/mirror", "user")
    ran = ggbench("models", "next")
    said = "".join(ran.out.split())  # a long path is folded anywhere
    assert "models--update" in said
    assert f"from{file}," in said
    assert f"rm{landed}" in said
    assert "models --update" not in ggbench("models", "gemma").out, "none of them is from the update"
    assert "another version" not in ran.out
    landed.write_text(landed.read_text().replace(f", by ggbench {__version__}\n", ", by ggbench 0.0.1\n"))
    assert "by another version of ggbench" in ggbench("models").out
    landed.unlink()
    assert load_catalog().model("qwen1.5-7b").repo == "Qwen/Qwen1.5-7B-Chat-GGUF"


def test_a_malformed_update_changes_nothing(ggbench: Run, tmp_path: Path) -> None:
    file = tmp_path / "newer.toml"
    file.write_text(UPDATE)
    assert ggbench("models", "--update", file).code == 0
    before = paths.updated_models_file().read_bytes()
    for text, what in (
        (UPDATE.replace("n_vocab", "n_vocabulary"), "unknown field `n_vocabulary`"),
        (UPDATE + 'architecture = "hal"\n', "at line 16"),
        (UPDATE.replace('"llama"', '"hal"'), "model 'next-1b': architecture 'hal' is unknown"),
        ("", "has no [[model]]"),
        (" " * (5 << 20), "is 5.00 MiB; a catalog has at most 4.00 MiB"),
    ):
        file.write_text(text)
        ran = ggbench("models", "--update", file)
        assert ran.code == 5
        assert what in ran.err.splitlines()[0]
        assert "nothing was changed" in ran.err.splitlines()[1]
        assert paths.updated_models_file().read_bytes() == before


def test_an_update_from_the_hub_is_verified(ggbench: Run, hub: TestHub) -> None:
    commit = hub.add_repo("org/catalog", {"models.toml": UPDATE.encode(), "big/new.toml": b" " * (5 << 20)})
    assert ggbench("models", "--update", "org/catalog", "--offline").code == 4
    assert ggbench("models", "--update", "org/catalog/other.toml").code == 4
    assert "is 5.00 MiB; a catalog has at most 4" in ggbench("models", "--update", "org/catalog/big/new.toml").err
    hub.fail("/org/catalog/resolve/*", Corrupt(200), times=None)
    assert ggbench("models", "--update", "org/catalog").code == 5
    assert not paths.updated_models_file().exists()
    hub.heal()
    ran = ggbench("models", "--update", "org/catalog")
    assert ran.out.splitlines()[0] == f"1 new model, 1 changed, from org/catalog@{commit[:12]} models.toml."


def test_a_path_is_a_folder_to_list(ggbench: Run, tmp_path: Path) -> None:
    (tmp_path / "broken-q4_0.gguf").write_bytes(b"GGUF")
    ran = ggbench("models", tmp_path, "--json")
    assert ran.code == 0
    assert ran.json == ggbench("models", "--dir", tmp_path, "--json").json
    assert "broken-q4_0" in ran.out


def test_a_folder_that_has_none_or_is_not_there(ggbench: Run, tmp_path: Path) -> None:
    ran = ggbench("models", "--dir", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ggbench("models", "--dir", tmp_path, "--json").json["rows"] == []
    assert ggbench("models", "--dir", tmp_path / "nowhere").code == 5


def test_a_truncated_file_says_what_is_here(ggbench: Run, tmp_path: Path, tiny_twin: Path) -> None:
    """Its metadata are whole, so that only the tensor table shows it."""
    whole = tiny_twin.read_bytes()
    (tmp_path / "mine-q8_0.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole-q8_0.gguf").write_bytes(whole)
    shown = ggbench("models", "--dir", tmp_path).out
    assert f"truncated: {format_bytes(len(whole) // 2)} of {format_bytes(len(whole))} are here" in shown
    rows = ggbench("models", "--dir", tmp_path, "--json").json["rows"]
    assert [row["name"] for row in rows if not row["reason"]] == ["whole-q8_0"]
