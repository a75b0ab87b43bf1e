"""`ggbench plan` of a model that is not alone: a draft, MTP layers, a projector and a prompt cache beside it."""

import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import ProveContext, Source, launch_engine
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.twin import cached_twin
from ggbench.sizing.drafts import check_pair
from tests.cli.conftest import Run
from tests.conftest import DRAFTING, TINY

pytestmark = pytest.mark.llama

SMALL, LARGE = "qwen1.5-0.5b:q4_k_m", ("qwen1.5-1.8b", "q4_k_m")
ASKED = ("-c", "4k", "-np", "2", "--json")

PARTS = ("weight", "kv", "compute", "draft", "projector", "process", "reserve")


def test_a_draft_takes_what_it_takes_alone(ggbench: Run) -> None:
    """Weights, a cache in f16 whatever the model's, and its compute buffer; the model itself hardly changes."""
    where = ("--gpu", "24GiB@1000GB/s", "--ram", "32GiB")
    words = (*LARGE, *where, "-ctk", "q8_0", "-ctv", "q8_0", *ASKED)
    [alone], [plain] = (ggbench("plan", *each).json["rows"] for each in ((SMALL, *where, *ASKED), words))
    [row] = ggbench("plan", *words, "--draft", SMALL).json["rows"]
    assert row["draft_bytes"] == alone["needed_bytes"]
    assert 0 <= row["needed_bytes"] - plain["needed_bytes"] - row["draft_bytes"] < 8 << 20
    assert row["kv_bytes"] == plain["kv_bytes"]
    assert row["planned_n_ctx"] < plain["planned_n_ctx"]
    assert f"--draft {SMALL}" in row["command"]
    gpu, host = row["devices"]
    assert gpu["draft_bytes"] == row["draft_bytes"]
    assert host["draft_bytes"] > alone["output_bytes"], "its input embedding lies in main memory"
    picked = ggbench("pick", *words[:6], "--draft", SMALL, "--json").json
    assert picked["commands"]["llama_server"].endswith(":q4_k_m --spec-type draft-simple")


def test_each_byte_of_a_memory_is_in_one_part(ggbench: Run, projector: Path) -> None:
    extras = ("--draft", SMALL, "--mmproj", projector, *ASKED)
    for where in (("--ram", "16GiB"), ("--gpu", "8GiB", "--ram", "16GiB"), ("--gpu", "gb10"), ("--ram", "4GiB")):
        [row] = ggbench("plan", "qwen1.5-0.5b", "q8_0", *where, *extras).json["rows"]
        devices = row["devices"]
        for each in devices:
            parts = [each[f"{part}_bytes"] for part in PARTS]
            if each["memory_bytes"] is not None:
                assert sum(parts) + each["left_bytes"] == each["memory_bytes"]
        assert sum(each["projector_bytes"] for each in devices) == 4 << 20
        assert row["left_bytes"] == devices[0]["left_bytes"]
        assert len(devices) == (2 if "8GiB" in where else 1)


def test_mtp_layers_are_loaded_and_run_in_a_context_of_their_own(ggbench: Run, tmp_path: Path) -> None:
    asked = ("plan", cached_twin("mtp", DRAFTING, "q8_0", tmp_path), "--gpu", "8GiB", *ASKED)
    more = ((), ("--mtp",), ("--mtp", "--spec-draft-n-max", "1"))
    [plain], [drafting], [fewer] = (ggbench(*asked, *each).json["rows"] for each in more)
    assert plain["draft_bytes"] is None
    assert drafting["weight_bytes"] == plain["weight_bytes"]
    assert drafting["device_weight_bytes"] > plain["device_weight_bytes"], "llama.cpp loads them only to draft"
    assert drafting["draft_bytes"] > 4096 * 2 * 2 * 64 * 2, "K and V of one layer in f16"
    states = [each["kv_bytes"] - plain["kv_bytes"] for each in (drafting, fewer)]
    assert states[0] == pytest.approx(3 * states[1], abs=32 << 10), "three copies to go back to"
    assert states[1] > 0 and fewer["output_bytes"] <= drafting["output_bytes"]
    assert "--mtp" in drafting["command"] and "--spec-draft-n-max 1" in fewer["command"]
    assert "add --engine llama-server" in ggbench("speculate", asked[1], "--mtp").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--mtp",), 5, "has no MTP layers"),
        (("--mtp", "--draft", SMALL), 2, "--draft and --mtp exclude each other"),
        (("--draft", "qwen1.5-1.8b:q8_0"), 2, "is larger than"),
        (("--draft", "gemma-3-1b:q2_k"), 5, "vocabularies"),
        (("--mmproj", "auto"), 2, "the catalog has no projector of qwen1.5-1.8b"),
        (("-ctkd", "q8_0"), 2, "--spec-draft-n-max are for a draft"),
        (("--spec-draft-n-max", "2"), 2, "--spec-draft-n-max are for a draft"),
        (("--draft", SMALL, "-ctvd", "q8_0", "-fa", "off"), 2, "a V cache of q8_0 needs flash attention"),
    ],
)
def test_what_cannot_draft_or_see(ggbench: Run, words: tuple[str, ...], code: int, said: str) -> None:
    refused = ggbench("plan", *LARGE, "--gpu", "8GiB", *words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 2)
    assert said in refused.err


@pytest.mark.parametrize("has_own_layers", [False, True])
def test_what_drafts_is_allocated_as_planned(ggbench: Run, tmp_path: Path, has_own_layers: bool) -> None:
    """The worker of a search loads it, and a draft model decodes at its end too; the log rounds to 0.01 MiB."""
    model = cached_twin("mtp", DRAFTING, "q8_0", tmp_path)
    draft = cached_twin("draft", TINY, "q8_0", tmp_path)
    asked = ("--mtp",) if has_own_layers else ("--draft", str(draft))
    words = (model, "--ram", "8GiB", "-c", "2k", "-np", "2", "-t", "1", "-ctkd", "q8_0", *asked)
    [row] = ggbench("plan", *words, "--json").json["rows"]
    setup = LlamaConfig(n_ctx=2048, n_seq_max=2, threads=1, n_gpu_layers=0, type_k_draft="q8_0", mtp=has_own_layers)
    engine = launch_engine(setup)
    with contextlib.closing(engine):
        *events, ending = engine.open(Source(model, None if has_own_layers else draft), setup)
        proof = list(engine.run(ProveContext()))
    assert (ending, proof[-1]) == (Completed(), Completed())
    allocated = [each for each in events if isinstance(each, Allocated)][-1]
    taken_bytes = sum(each.total_bytes for each in allocated.draft_buffers)
    assert taken_bytes == pytest.approx(row["draft_bytes"], abs=64 << 10)
    assert sum(each.kv_bytes for each in allocated.buffers) == pytest.approx(row["kv_bytes"], abs=64 << 10)


def test_gemma_3_does_not_draft_for_gemma_4() -> None:
    """Their vocabularies are equally large; headers of the catalog have no tokenizer to tell them apart."""
    file = build_model(TINY, "draft")
    check_pair(replace(file, architecture="gemma3"), file)
    with pytest.raises(Unsupported, match="use different tokenizers: llama, gemma4"):
        check_pair(replace(file, architecture="gemma4"), replace(file, architecture="gemma3"))


def test_a_draft_head_is_refused_before_an_engine_starts(
    ggbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = cached_twin("head", replace(TINY, architecture="gemma3", sliding_window=64), "q8_0", tmp_path)
    head.write_bytes(head.read_bytes().replace(b"gemma3", b"eagle3"))
    monkeypatch.setattr("ggbench.engines.contract.launch_engine", None)
    refused = ggbench("pick", *LARGE, "--gpu", "8GiB", "--draft", head)
    assert refused.code and "is a draft head (eagle3)" in refused.err
