"""`ggbench pick` with the real llama.cpp: what is recommended of a catalog model, why, and the exit codes."""

import re
from pathlib import Path
from typing import Any

import pytest

from ggbench.decisions.pick.models import of_catalog, of_families
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import ExitCode
from ggbench.machine.host import default_threads
from ggbench.machine.records import Gpu
from ggbench.models.catalog import load_catalog
from ggbench.sizing.fit import Fit, Fitter
from ggbench.units import GIB
from tests.cli.conftest import Run
from tests.fakes.hub import TestHub

pytestmark = pytest.mark.llama

CARD = ("--gpu", "rtx-3060")
F16 = ("-ctk", "f16", "-ctv", "f16")


def said_against(document: dict[str, Any]) -> set[str]:
    return {each["key"] for each in document["reasons"]}


def test_the_json_of_a_pick(ggbench: Run) -> None:
    """Each quant has three caches, and a part in main memory if it does not fit; q6_k loses little for certain."""
    quants = ("q4_0", "q5_k_m", "q6_k", "q8_0")
    ran = ggbench("pick", "twin:qwen1.5-7b", *quants, *CARD, "--need-ctx", "16384", "--json")
    assert ran.code == ExitCode.DONE
    document = ran.json
    assert document["schema"] == "ggbench.pick/2"
    pick = document["pick"]
    assert (pick["label"], pick["quant"], pick["cache"], pick["n_ctx"]) == ("→ pick", "q6_k", "q8_0", 16384)
    assert pick["speed_basis"] == "published"
    low, high = pick["tok_s_ci95"]
    assert low < pick["tok_s"] < high
    assert pick["tok_s"] < pick["expected_tok_s"], "at the end of the context it is slower than in a chat"
    assert pick["kld_basis"] == "typical"
    assert pick["kld"] == pytest.approx(pick["weights_kld"] + pick["cache_kld"], rel=0.01)
    assert (pick["n_gpu_layers"], pick["n_cpu_moe"], pick["host_bytes"]) == (33, 0, None)
    assert document["comfortable"] is True and {"pick_against.slower", "pick_against.loses"} <= said_against(document)
    assert [check["need"] for check in pick["checks"]] == ["memory"]
    split = [each for each in document["candidates"] if each["host_bytes"]]
    assert {each["type_k"] for each in split} == {"f16", "q8_0"}
    assert len(document["candidates"]) == 3 * len(quants) + len(split)
    given = ggbench("pick", "twin:qwen1.5-7b", "q4_k_m", "--gpu", "4GiB", "-ctk", "q4_0", "-ctv", "q4_0", "--json").json
    assert (given["pick"]["type_k"], given["pick"]["host_bytes"] > 0) == ("q4_0", True)
    assert document["nearest_miss"] is None
    assert "-c 16384 -ctk q8_0 -ctv q8_0" in document["commands"]["llama_server"]
    options = (*CARD, "-c", "16384", "--type-k", "q8_0", "--type-v", "q8_0", "--json")
    rows = {row["quant"]: row for row in ggbench("plan", "qwen1.5-7b", "q6_k", "q4_0", *options).json["rows"]}
    assert (pick["needed_bytes"], pick["max_n_ctx"]) == tuple(
        rows["q6_k"][n] for n in ("needed_bytes", "planned_n_ctx")
    )
    q4_0 = next(each for each in document["candidates"] if (each["quant"], each["cache"]) == ("q4_0", "q8_0"))
    assert abs(q4_0["max_n_ctx"] - rows["q4_0"]["planned_n_ctx"]) <= 512  # by a line


def test_a_catalog_models_own_mixture_is_picked_by_its_published_size(ggbench: Run) -> None:
    """What is to be downloaded is what is sized; a quant that the repo is not known to have is not downloaded."""
    words = ("--gpu", "rtx-3090", "--json")
    [row] = ggbench("plan", "gemma-4-26b-a4b", "q5_k_m", "--gpu", "rtx-3090", "--json").json["rows"]
    picked = ggbench("pick", "gemma-4-26b-a4b", "q5_k_m", *words).json["pick"]
    size = load_catalog().model("gemma-4-26b-a4b").file_bytes["ud-q5_k_m"]
    assert picked["file_bytes"] == picked["download_bytes"] == row["file_bytes"] == size
    assert picked["needed_bytes"] == row["needed_bytes"]
    lacking = ggbench("pick", "qwen1.5-0.5b", "q5_1", *words).json["commands"]
    assert "q5_1 is not known to be published in Qwen/Qwen1.5-0.5B-Chat-GGUF" in lacking["notes"][0]


def test_nothing_holds_so_long_a_context(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ggbench("pick", "llama-3.1-70b", "q4_k_m", "--gpu", "rtx-3090", "--ram", "8GiB", "-c", "8k")
    assert "two of them hold it with 8k (--gpu rtx-3090x2)" in pair.err
    monkeypatch.setattr("ggbench.commands.picking.card_twice", lambda *_: "")
    words = ("pick", "twin:qwen1.5-72b", "q2_k", *CARD, "--need-ctx", "32k")
    ran = ggbench(*words, "--json")
    assert ran.code == ExitCode.DOES_NOT_FIT
    document = ran.json
    assert document["pick"] is None
    assert document["commands"] is None
    nearest = document["nearest_miss"]
    assert (nearest["quant"], nearest["type_k"]) == ("q2_k", "q8_0")
    assert [check["is_met"] for check in nearest["checks"]] == [False]
    assert any(change["left_bytes"] >= 0 for change in document["changes"])
    monkeypatch.setattr("ggbench.commands.picking.find_substitute", lambda *_: "qwen3.8-27b")
    said = ggbench(*words, "--why")
    assert (said.code, "all candidates" in said.out) == (ExitCode.DOES_NOT_FIT, True)
    assert re.fullmatch(
        r"Error: .*qwen1.5-72b does not fit: .* of main memory short\nHint: it fits with -c \d+; .*\n",
        said.err,
    )
    assert said.err.endswith("; qwen3.8-27b fits: ggbench pick qwen3.8-27b --gpu rtx-3060 --n-ctx 32768\n")


def test_a_workload_is_shortened_to_a_given_context(ggbench: Run) -> None:
    short = ggbench("pick", "twin:qwen1.5-7b", "q4_k_m", *CARD, "--workload", "coding", "-c", "20k", *F16, "--why").out
    assert "coding: 40 turns, 20,436 tokens at last, in a context of 20,480" in " ".join(short.split())


def test_four_users_need_four_contexts_and_are_each_answered(ggbench: Run) -> None:
    cache = ("-ctk", "f16", "-ctv", "f16")
    options = ("pick", "twin:qwen1.5-7b", "q4_k_m", *CARD, *cache, "--workload", "64+64@256", "--json")
    alone, four = (ggbench(*options, *own).json for own in (("--need-ctx", "1k"), ("-c", "4k", "-np", "4")))
    one, each = alone["pick"], four["pick"]
    assert (one["n_ctx"], each["n_ctx"], four["needs"]["n_slots"]) == (1024, 4096, 4)
    assert one["expected_tok_s"] / 4 < each["expected_tok_s"] < one["expected_tok_s"]
    assert (one["speed_basis"], each["speed_basis"]) == ("published", "published")
    assert "-c 4096" in four["commands"]["llama_server"] and "-np 4" in four["commands"]["llama_server"]
    assert " for each of 4 users at 1k, " in four["answer"]


def test_a_prompt_cache_is_limited_to_the_main_memory_that_is_left(ggbench: Run) -> None:
    words = ("pick", "qwen1.5-moe-a2.7b", "q8_0", *CARD, "-ctk", "f16", "-ctv", "f16", "--json")
    much, little = (ggbench(*words, "--ram", f"{size}GiB@60GB/s").json for size in (64, 10))
    assert "--cache-ram" not in much["commands"]["llama_server"]
    assert re.search(r" --cache-ram [0-9]+$", little["commands"]["llama_server"])


def test_needs_that_change_the_answer(ggbench: Run) -> None:
    options = ("pick", "qwen1.5-7b", *CARD, "-ctk", "f16", "-ctv", "f16", "--need-ctx", "5120", "--json")
    free = ggbench(*options).json
    too_fast = format(1.4 * free["pick"]["expected_tok_s"], ".1f")
    fast = ggbench(*options, "--min-speed", too_fast).json
    strict = ggbench(*options, "--min-speed", too_fast, "--max-loss", "0.003").json
    assert free["pick"]["quant"] == "q8_0"
    assert free["pick"]["kld"] < fast["pick"]["kld"] < 0.05
    assert fast["pick"]["meets"] is None
    assert "pick_against.misses" in said_against(fast)
    assert strict["pick"] is None


def test_models_of_the_catalog_are_compared_by_their_ids(ggbench: Run) -> None:
    """The one with more parameters wins if both fit and are comfortable."""
    words = ("qwen1.5-0.5b", "q8_0", "Qwen1.5-1.8B", "q4_k_m", "-ctk", "f16", "-ctv", "f16")
    found = ggbench("pick", *words, *CARD, "--json")
    tried = {(each["model"], each["quant"]) for each in found.json["candidates"]}
    assert tried == {(f"qwen1.5-{size}", quant) for size in ("0.5b", "1.8b") for quant in ("q8_0", "q4_k_m")}
    assert found.json["pick"]["model"] == "qwen1.5-1.8b"


def test_the_cpu_is_given_the_threads_that_are_timed(ggbench: Run) -> None:
    options = ("pick", "qwen1.5-0.5b", "q4_k_m", "-ctk", "f16", "-ctv", "f16", "--min-speed", "1", "--need-ctx", "5k")
    unknown = ggbench(*options, "--bandwidth", "30GB/s")
    [server] = [line for line in unknown.out.splitlines() if line.startswith("llama-server -")]
    assert f" -t {default_threads()} " in server


def test_bad_input(ggbench: Run, tmp_path: Path) -> None:
    for wrong in (
        ("qwen1.5-7b", "--min-speed", "-1"),
        ("qwen1.5-7b", "--need-ctx", "0"),
        ("qwen1.5-7b", "--need-ctx", "8k", "-c", "8k"),
        ("qwen1.5-7b", "--workload", "talk"),
        ("qwen1.5-7b", "--family", "qwen1.5"),
        ("--local", "--family", "qwen1.5"),
        ("--family", "qwen9"),
        ("org/name", "qwen1.5-7b"),
        ("qwen1.5-7b", "-ctk", "q8_0", "-ctv", "q8_0", "--flash-attn", "off"),
    ):
        ran = ggbench("pick", *wrong, *CARD)
        assert ran.code == ExitCode.USAGE, wrong
        assert ran.err.count("\n") == 2, ran.err
        assert "Hint: " in ran.err
    (tmp_path / "a-q8_0.gguf").write_bytes(b"junk")
    assert ggbench("pick", tmp_path, *CARD).code == ExitCode.BAD_FILE
    assert ggbench("pick", "qwen1.5-7b", "q4_0", "--draft", "gemma-3-1b:q2_k", *CARD).code == ExitCode.BAD_FILE


def test_several_families_are_compared_each_model_once() -> None:
    found = [model.id for model in of_families(["gemma-3", "Phi-4", "gemma-3-1b"])]
    assert {"gemma-3-1b", "gemma-3-27b"} < set(found) and "phi-4-mini" in found
    assert len(found) == len(set(found))
    named = {model.id for model in of_families(["qwen3.5", "qwen3.5-27b"])}
    assert {"qwen3.5-9b", "qwen3.5-27b"} < named and "qwen3.5-35b-a3b" not in named, "superseded, and not named"
    [older] = of_catalog(["qwen3.5-27b:q4_k_m"])
    assert older.superseded_by == {"qwen3.6-27b", "qwen3.8-27b"}
    quants = {
        each.key: [own.quant for own in each.variants] for each in of_catalog(["qwen3-32b:q2_k", "qwen3-14b:q5_k_m"])
    }
    assert quants == {"qwen3-32b": ["q2_k"], "qwen3-14b": ["q5_k_m"]}


def test_a_family_is_compared_by_theory_first(ggbench: Run) -> None:
    """The larger mixture is ahead of the dense model, which is beside it; no score is known of either."""
    found = ggbench("pick", "--family", "lfm2", "--gpu", "8GiB@300GB/s", "--json").json
    assert (found["pick"]["label"], found["pick"]["model"]) == ("→ most capable", "lfm2-8b-a1b")
    others = [found["candidates"][each] for each in found["alternatives"]]
    assert [(each["label"], each["model"]) for each in others] == [("dense", "lfm2-1.2b")]
    assert not found["pick"]["score_source"]
    nothing = ggbench("pick", "--family", "deepseek-v3", *CARD)
    assert (nothing.code, nothing.out) == (ExitCode.DOES_NOT_FIT, "")


def test_two_files_of_one_quant(ggbench: Run, tiny_twin: Path, tmp_path: Path) -> None:
    for name in ("tiny.Q8_0.gguf", "tiny-again.Q8_0.gguf"):
        (tmp_path / name).hardlink_to(tiny_twin)
    ran = ggbench("pick", tmp_path, *CARD, "--workload", "256+100", "--json")
    assert ran.code == ExitCode.DONE
    assert len({(each["quant"], each["type_k"]) for each in ran.json["candidates"]}) == 6


def test_a_twin_beside_other_files_is_left_out(ggbench: Run, tiny_twin: Path, tmp_path: Path) -> None:
    (tmp_path / "twin-q8_0.gguf").write_bytes(tiny_twin.read_bytes())
    alone = ggbench("pick", str(tmp_path), "--json")
    assert (Path(alone.json["pick"]["file"]).name, alone.err) == ("twin-q8_0.gguf", "")
    (tmp_path / "own-q8_0.gguf").write_bytes(tiny_twin.read_bytes().replace(b"ggbench.twin", b"ggbench.none"))
    ran = ggbench("pick", str(tmp_path), "--json")
    assert {Path(each["file"]).name for each in ran.json["candidates"]} == {"own-q8_0.gguf"}


def test_an_incomplete_file_is_not_recommended(ggbench: Run, tiny_twin: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun" / "tiny.Q8_0.gguf"
    begun.parent.mkdir()
    begun.write_bytes(tiny_twin.read_bytes()[:-100_000])
    for words in (("plan", begun, *CARD, "-c", "512"), ("pick", begun, *CARD, "--workload", "256+100")):
        alone = ggbench(*words)
        assert (alone.code, alone.out) == (ExitCode.BAD_FILE, "")
        assert "Error: tiny.Q8_0.gguf is truncated: 97.7 KiB of its " in alone.err
        assert "download it again" in alone.err
    (begun.parent / "tiny.Q4_0.gguf").hardlink_to(tiny_twin)
    both = ggbench("pick", begun.parent, *CARD, "--workload", "256+100")
    assert both.code == ExitCode.DONE
    assert "tiny.Q4_0.gguf" in both.out
    whole = ggbench("pick", begun.parent, *CARD, "--workload", "256+100", "--why").out
    assert "tiny.Q8_0.gguf is truncated: 97.7 KiB" in " ".join(whole.split())


def test_a_repo_of_many_quants_is_read_once(ggbench: Run, hub: TestHub, tiny_twin: Path) -> None:
    families = ("Q2_K", "Q4_K_M", "Q6_K", "Q8_0", "IQ4_XS")
    names = [f"{prefix}{family}" for prefix in ("", "UD-") for family in families]
    hub.add_repo("org/many", files={f"tiny-{name}.gguf": tiny_twin for name in names})
    asked = ("pick", "org/many", *CARD, "--workload", "256+100", "--json")
    found = ggbench(*asked)
    assert found.code == ExitCode.DONE, found.err
    assert len({each["quant"] for each in found.json["candidates"]}) == 10
    again = ggbench(*asked, "--offline")
    assert (again.code, again.json["pick"]) == (ExitCode.DONE, found.json["pick"])
    missing = ggbench("pick", "org/other", *CARD, "--offline")
    assert (missing.code, missing.err.count("\n")) == (ExitCode.NETWORK, 2)


def test_a_gpu_that_other_programs_fill(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Gpu(0, "NVIDIA GeForce RTX 3060", None, None, 12 * GIB, GIB // 2, 192, 7501, "580.1")
    monkeypatch.setattr("ggbench.sizing.budget.visible_gpus", lambda: (full,))
    ran = ggbench("pick", "qwen1.5-0.5b", "q4_0", "q8_0", "--bandwidth", "360GB/s", "--json")
    assert ran.code == ExitCode.DOES_NOT_FIT
    assert ran.json["pick"] is None
    assert ran.json["nearest_miss"]["fits"] is False


def test_a_context_beyond_training_is_planned_up_to_it_and_is_marked(ggbench: Run) -> None:
    """The need is not met; what runs is what a need of the whole training context gets."""
    words = ("pick", "qwen1.5-0.5b", "q4_0", "q8_0", *CARD)
    ran = ggbench(*words, "--need-ctx", "40000")
    assert ran.code == ExitCode.DOES_NOT_FIT
    within = ggbench(*words, "--need-ctx", "32k")
    assert within.code == ExitCode.DONE
    server = [[line for line in each.out.splitlines() if line.startswith("llama-server")] for each in (ran, within)]
    assert server[0] == server[1] != []
    assert "The model was trained with contexts of up to 32,768 tokens" in ran.out


def test_no_model_on_this_disk(ggbench: Run, home: Path) -> None:
    ran = ggbench("pick", "--local", *CARD)
    assert ran.code == ExitCode.USAGE
    assert "this disk has no model" in ran.err and "Hint: ggbench pick finds" in ran.err


def test_one_configuration_is_printed_or_saved_as_asked(ggbench: Run, home: Path) -> None:
    """Nothing but what is pasted; a Modelfile only where Ollama has settings for everything planned."""
    words, file = ("pick", "twin:qwen1.5-7b", "q5_k_m", *CARD, "-c", "16k"), home / "models.ini"
    assert ggbench(*words, "--as", "sh").out == ggbench(*words, "--json").json["commands"]["llama_server"] + "\n"
    printed = ggbench(*words, "--as", "preset").out
    saved = ggbench(*words, "--as", "preset", "-o", str(file))
    assert (saved.out, file.read_text()) == ("", printed) and printed.startswith("[")
    assert "exists already\nHint: --force" in ggbench(*words, "--as", "preset", "-o", str(file)).err
    assert ggbench(*words, "--as", "docker", "-o", str(file), "--force").code == ExitCode.DONE
    assert file.read_text().startswith("docker run --rm --gpus all ")
    assert "add --as" in ggbench(*words, "-o", str(file)).err
    assert "add -o FILE" in ggbench(*words, "--force").err
    split = ggbench("pick", "qwen1.5-moe-a2.7b", "q8_0", *CARD, "--ram", "64GiB@60GB/s", "--as", "modelfile")
    assert (split.code, split.out) == (ExitCode.USAGE, "")
    assert split.err.endswith("Hint: use --as sh\n")
    assert ggbench("pick", "twin:qwen1.5-72b", "q2_k", *CARD, "-c", "32k", "--as", "sh").out == ""


def test_a_pick_sizes_each_quant_in_each_setup_once(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on the faster of two cards alone, and where it searches the longest context of what it lists."""
    sized, fit = list[tuple[str, LlamaConfig]](), Fitter.fit

    def counted(fitter: Fitter, setup: LlamaConfig) -> Fit:
        before = len(fitter._fits)
        found = fit(fitter, setup)
        if len(fitter._fits) > before:
            sized.append((fitter.file.header_sha256, setup))
        return found

    monkeypatch.setattr(Fitter, "fit", counted)
    cards = ("--gpu", "rtx-3060,rtx-3090")
    found = ggbench("pick", "qwen3-14b", *cards, "--need-ctx", "24k", "--json").json
    assert len(sized) == len(set(sized)) > 10
    assert "-dev CUDA1" in found["commands"]["llama_server"], "faster than both, and it fits"
    assert any("counted so: RTX 3060 and RTX 3090" in note for note in found["notes"])
    own = found["pick"]
    [row] = ggbench("plan", "qwen3-14b", own["quant"], *cards, "-dev", "CUDA1", "-c", "24k", "--json").json["rows"]
    assert (own["needed_bytes"], own["left_bytes"]) == (row["needed_bytes"], row["left_bytes"])
