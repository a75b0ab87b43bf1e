"""Which checkpoint `transformers:` means, and what becomes of a repo that is not whole."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.extras.transformers.checkpoint import read_checkpoint
from ggbench.extras.transformers.models import find_checkpoint
from ggbench.extras.transformers.storage import METHODS
from ggbench.hub.access import HubAccess
from ggbench.models.reference import ModelRef, parse_model
from ggbench.models.targets import materialize, resolve, resolve_one
from tests.fakes.checkpoints import GPTQ, QWEN2_TINY, write_checkpoint
from tests.fakes.hub import TestHub


def _bare(ref: ModelRef) -> ModelRef:
    return replace(ref, label="", text="")


@pytest.fixture
def access(hub: TestHub) -> HubAccess:
    return HubAccess.from_environment()


def _files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.iterdir())}


def _ref(form: str, name: str, quants: tuple[str, ...] = (), revision: str = "main") -> ModelRef:
    return ModelRef("own", name, quants, revision, engine="transformers", form=form)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("transformers:Qwen/Qwen2-7B", _ref("hub", "Qwen/Qwen2-7B")),
        ("TRANSFORMERS:Qwen/Qwen2-7B@refs/pr/1:int8", _ref("hub", "Qwen/Qwen2-7B", ("int8",), "refs/pr/1")),
        ("transformers:https://huggingface.co/Qwen/Qwen2-7B", _ref("hub", "Qwen/Qwen2-7B")),
        ("transformers:./missing", _ref("folder", "missing")),
        ("transformers:/a/b/c:nf4", _ref("folder", "/a/b/c", ("nf4",))),
    ],
)
def test_the_prefix_states_a_checkpoint(text: str, ref: ModelRef) -> None:
    assert _bare(parse_model(text)) == ref


def test_a_folder_takes_precedence_over_a_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert _bare(parse_model("transformers:org/name")) == _ref("folder", "org/name")
    assert _bare(parse_model("transformers:org/name:nf4")) == _ref("folder", "org/name", ("nf4",))
    assert _bare(parse_model("org/name")) == ModelRef("path", "org/name")


def test_a_method_that_a_checkpoint_is_not_stored_by_is_refused(tmp_path: Path) -> None:
    """It is refused before anything is loaded."""
    folder = write_checkpoint(tmp_path / "tiny", QWEN2_TINY)
    assert [each.quant for each in resolve(parse_model(f"transformers:{folder}"))] == ["bf16"]
    with pytest.raises(UsageError, match="tiny is stored as bf16, but gptq-int4 needs"):
        resolve(parse_model(f"transformers:{folder}", "gptq-int4"))
    with pytest.raises(UsageError, match="no quant of a checkpoint named 'q4_k_m'"):
        resolve(parse_model(f"transformers:{folder}", "q4_k_m"))


def test_a_folder_without_safetensors_is_planned_but_not_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_TINY))
    alone = resolve_one(parse_model(f"transformers:{tmp_path}", "bf16"))
    assert alone.words == (f"transformers:{tmp_path}", "bf16")
    assert alone.header().n_params
    with pytest.raises(BadFile, match="has no weights in safetensors"):
        materialize(alone)


@pytest.mark.parametrize(("change", "quant"), [({"group_size": 32}, "gptq-int4"), ({"bits": 8}, "gptq-int8")])
def test_a_checkpoint_keeps_its_own_groups_and_bits_where_its_quant_is_named(
    tmp_path: Path, change: dict[str, int], quant: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**QWEN2_TINY, "quantization_config": {**GPTQ, **change}}))
    own = resolve_one(parse_model(f"transformers:{tmp_path}"))
    assert own.quant == quant
    named = resolve_one(parse_model(f"transformers:{tmp_path}", quant))
    assert named.header().weight_bytes == own.header().weight_bytes


def test_a_repo_is_planned_from_its_config_alone(hub: TestHub, access: HubAccess, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "repo", {**QWEN2_TINY, "quantization_config": GPTQ}, "gptq-int4", n_shards=2)
    hub.add_repo("org/tiny-GPTQ", _files(folder))
    found = find_checkpoint(_ref("hub", "org/tiny-GPTQ"), hub=access)
    file = found.checkpoint.model_file(found.checkpoint.method)
    local = read_checkpoint(folder).model_file(METHODS["gptq-int4"])
    assert (file.n_params, file.weight_bytes) == (local.n_params, local.weight_bytes)
    assert file.file_bytes == sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert hub.sent_bytes("*.safetensors") == 0
    assert found.download_bytes > file.file_bytes


def test_a_download_that_stopped_is_taken_up_again(hub: TestHub, access: HubAccess, tmp_path: Path) -> None:
    hub.add_repo("org/tiny", _files(write_checkpoint(tmp_path / "repo", QWEN2_TINY, n_shards=3)))
    folder = materialize(resolve_one(parse_model("transformers:org/tiny"), hub=access)).paths[0]
    shard = folder / "model-00002-of-00003.safetensors"
    shard.resolve().unlink()
    target = resolve_one(parse_model("transformers:org/tiny"), hub=access)
    assert target.download_bytes > 0
    materialize(target)
    assert shard.is_file()


def test_a_repo_of_gguf_files_is_no_checkpoint(hub: TestHub, access: HubAccess) -> None:
    hub.add_repo("org/GGUF", {"a-q8_0.gguf": b"GGUF", "README.md": b""})
    with pytest.raises(UsageError, match=r"org/GGUF has no config.json") as caught:
        resolve(parse_model("transformers:org/GGUF"), hub=access)
    assert caught.value.hint == "its GGUF files are named without transformers:"


def test_offline_a_repo_that_was_seen_is_still_planned(hub: TestHub, access: HubAccess, tmp_path: Path) -> None:
    import msgspec.structs

    hub.add_repo("org/tiny", _files(write_checkpoint(tmp_path / "repo", QWEN2_TINY)))
    offline = msgspec.structs.replace(access, offline=True)
    with pytest.raises(NetworkError, match="offline mode is on"):
        resolve(parse_model("transformers:org/tiny"), hub=offline)
    seen = find_checkpoint(_ref("hub", "org/tiny"), hub=access)
    kept = find_checkpoint(_ref("hub", "org/tiny"), hub=offline)
    assert kept.checkpoint.model_file(METHODS["nf4"]) == seen.checkpoint.model_file(METHODS["nf4"])
    materialize(resolve_one(parse_model("transformers:org/tiny"), hub=access))
    shutil.rmtree(offline.listings_dir)
    assert resolve_one(parse_model("transformers:org/tiny"), hub=offline).download_bytes == 0
