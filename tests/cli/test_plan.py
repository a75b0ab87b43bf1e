"""`ggbench plan` with the real llama.cpp: what is printed, the exit codes, and nothing left behind."""

import re
import shlex
import tempfile
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.units import GIB
from tests.cli.conftest import Run

pytestmark = pytest.mark.llama

CARD = ("--vram", "4GiB", "--bandwidth", "100GB/s")


def test_a_local_file_and_its_folder(ggbench: Run, tiny_twin: Path) -> None:
    for place in (tiny_twin, tiny_twin.parent):
        [row] = ggbench("plan", place, *CARD, "--json").json["rows"]
        assert (row["quant"], row["provenance"], row["file"]) == ("q8_0", "twin", str(tiny_twin))
        assert row["fits"]
        assert str(place) in row["command"]
        assert "--vram 4GiB" in row["command"]


def test_machines_side_by_side(ggbench: Run, tiny_twin: Path) -> None:
    """Each has a plan of its own, with the cards' backends and memories, by one worker."""
    options = ("--gpu", "rtx-3060", "--or", "4GiB@100GB/s", "--or", "rtx-3090x2")
    compared = ggbench("plan", tiny_twin, *options, "--json").json
    assert [each["machine"]["device"] for each in compared["machines"]][2] == "2 x NVIDIA GeForce RTX 3090"
    rows = [row for each in compared["machines"] for row in each["rows"]]
    assert len({row["budget_bytes"] for row in rows}) == 3 and all(row["fits"] for row in rows)
    assert [row["command"].partition("--gpu ")[2].split()[0] for row in rows] == list(options[1::2])
    [choice] = compared["choices"]
    assert len(choice["fitting"]) == 3 and choice["fastest"] in choice["fitting"]
    assert ggbench("plan", tiny_twin, *options).out.startswith("RTX 3060 11.6 GiB ")


def test_main_memory_that_was_given_is_not_that_of_a_machine_with_its_own(ggbench: Run, tiny_twin: Path) -> None:
    """A Strix Halo's is soldered, as a Mac's, a Radeon 890M takes the modules."""
    others = ("--or", "strix-halo", "--or", "radeon-890m", "--or", "m4-pro-24gb")
    words = ("plan", tiny_twin, "--gpu", "rtx-3060", "--ram", "54GiB@ddr5-5600x2", *others, "--json")
    _, soldered, modules, mac = (each["machine"] for each in ggbench(*words).json["machines"])
    assert (mac["memory_bytes"], mac["bandwidth_bytes_per_s"]) == (pytest.approx(17.76 * GIB, rel=1e-4), 273e9)
    assert (soldered["memory_bytes"], soldered["bandwidth_bytes_per_s"]) == (64 * GIB, 256e9)
    assert (modules["memory_bytes"], modules["bandwidth_bytes_per_s"]) == (27 * GIB, 89.6e9)


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("qwen2.5-14b q8_0 -c 4096 --gpu t4", False), ("qwen2.5-14b q8_0 -c 1024 --gpu t4", True),
        ("qwen3.5-122b-a10b q8_0 -c 32k --gpu dgx-spark", False),
        ("gpt-oss-120b mxfp4 -ncmoe 31 -c 24k -ub 2048 --gpu rtx-4070 --ram 64GiB", True),
    ],
)  # fmt: skip
def test_a_card_holds_what_it_holds_in_reports(ggbench: Run, words: str, fits: bool) -> None:
    """Figures of the memory that drivers show; datasheets would hold the T4's and the DGX Spark's, and a reserve of
    1.25 GiB refuse the RTX 4070's.
    """
    plan = ggbench("plan", *words.split(), "--json")
    assert (plan.json["rows"][0]["fits"], plan.code) == (fits, 0 if fits else 3)


def test_a_reserve_that_alone_decides_is_said(ggbench: Run) -> None:
    setup = ("-c", "32k", "-ub", "2048", "--gpu", "rtx-4070", "--ram", "64GiB")
    words = ("plan", "gpt-oss-120b", "mxfp4", *setup, "-ncmoe")
    assert (
        "reserve of 561.0 MiB decides (for llama.cpp's process and a desktop); --reserve 0" in ggbench(*words, "31").out
    )
    assert ggbench(*words, "31", "--reserve", "0").code == 0
    assert "--reserve" not in ggbench(*words, "20").out


@pytest.mark.parametrize(
    ("model", "gpu", "setting", "a_mib"),
    [
        ("qwen3-30b-a3b", "m4-pro-24gb", "sudo sysctl iogpu.wired_limit_mb=", 1),
        ("qwen3-30b-a3b", "radeon-890m-32gb", "boot Linux with ttm.pages_limit=", 256),
    ],
)
def test_a_gpu_that_shares_memory_is_given_more_of_it(
    ggbench: Run, model: str, gpu: str, setting: str, a_mib: int
) -> None:
    """It gains nothing by layers or experts beside its share: that is the same memory, read by the CPU."""
    words = ("plan", model, "q4_k_m", "--gpu", gpu, "-c", "8k")
    [row] = [row for row in ggbench(*words, "--json").json["rows"] if row["quant"] == "q4_k_m"]
    assert not row["fits"] and not {"n_cpu_moe", "n_gpu_layers"} & {each["change"] for each in row["changes"]}
    found = re.search(f"{re.escape(setting)}([0-9]+); --vram ([0-9]+)MiB", ggbench(*words).out)
    assert found is not None and int(found[1]) == a_mib * int(found[2])
    assert ggbench(*words, "--vram", f"{found[2]}MiB").code == 0
    assert ggbench(*words, "--vram", f"{int(found[2]) - 2}MiB").code == 3


def test_a_share_is_not_raised_beyond_what_the_system_needs(ggbench: Run) -> None:
    """It keeps 4 GiB, whatever the model, and a smaller cache is named first."""
    for model, gpu, n_ctx in (("qwen3-30b-a3b q6_k", "m4-pro-24gb", "4k"), ("qwen3-32b q4_k_m", "m4-24gb", "8k")):
        out = ggbench("plan", *model.split(), "--gpu", gpu, "-c", n_ctx).out
        assert "sysctl" not in out and "-ncmoe" not in out


def test_no_more_than_what_the_model_was_trained_with_is_planned(ggbench: Run) -> None:
    """Like pick, in the same words: llama-server gives a slot no more, whatever the cache is made for."""
    words = ("qwen3-8b", "q4_k_m", "-c", "65536", "--gpu", "rtx-3090")
    planned = ggbench("plan", *words, "--json")
    [row] = planned.json["rows"]
    assert (planned.code, row["fits"], row["n_ctx"]) == (3, True, 40_960)
    said = {line for line in ggbench("plan", *words).out.splitlines() if "40,960 tokens;" in line}
    assert len(said) == 1 and said <= set(ggbench("pick", *words).out.splitlines())
    slots = ggbench("plan", *words, "-np", "2", "--json")
    assert (slots.code, slots.json["rows"][0]["n_ctx"]) == (0, 65_536)


def test_each_machine_keeps_as_few_experts_in_main_memory_as_it_needs(ggbench: Run) -> None:
    """A plan of one alone confirms it, with the batch that pick takes for experts in main memory."""
    words, cards = ("plan", "qwen3-30b-a3b", "q4_k_m", "-c", "16k"), ("rtx-4060-ti-16gb", "rtx-3060")
    compared = ggbench(*words, "--gpu", cards[0], "--or", cards[1], "--json").json
    rows = [row for each in compared["machines"] for row in each["rows"]]
    numbers = [int(row["command"].partition("--n-cpu-moe ")[2].split()[0]) for row in rows]
    assert numbers[1] > numbers[0] > 0 and all(row["fits"] and row["expected"] for row in rows)
    found = (*words, "--gpu", cards[1], "-ub", "2048", "-ncmoe")
    [alone] = ggbench(*found, numbers[1], "--json").json["rows"]
    assert (alone["left_bytes"], alone["planned_n_ctx"]) == (rows[1]["left_bytes"], rows[1]["planned_n_ctx"])
    assert ggbench(*found, numbers[1] - 1).code == 3
    [choice] = compared["choices"]
    assert choice["lead_ci95"][0] < choice["lead"] < choice["lead_ci95"][1]


def test_with_a_workload_experts_are_placed_as_pick_places_them(ggbench: Run) -> None:
    words = ("qwen3-30b-a3b", "q4_k_m", "--gpu", "rtx-3060", "--ram", "32GiB", "--workload", "chat")
    planned = ggbench("plan", *words, "--json")
    [row], pick = planned.json["rows"], ggbench("pick", *words, "-ctk", "f16", "-ctv", "f16", "--json").json["pick"]
    assert (planned.code, row["fits"], row["setup"]["n_cpu_moe"]) == (0, True, pick["n_cpu_moe"])
    assert (row["left_bytes"], row["session"]["total_s"]["value"]) == (pick["left_bytes"], pick["session_s"])
    assert f"-ncmoe {pick['n_cpu_moe']}" in ggbench("plan", *words).out


def test_exit_codes(ggbench: Run, tmp_path: Path) -> None:
    assert ggbench("plan", "qwen1.5-0.5b", "q2_k", "f32", "--vram", "3GiB").code == 0
    assert ggbench("plan", "qwen1.5-7b", "q4_k_m", "--vram", "1GiB").code == 3
    assert ggbench("plan", "qwen1.5-0.5b", "q9_k", *CARD).code == 2
    assert ggbench("plan", "qwen1.5-0.5b", "--n-ctx", "100000000", *CARD).code == 2
    assert ggbench("plan", "qwen1.5-0.5b", *CARD, "--tensor-split", "1,1").code == 2
    for name in ("a-q8_0.gguf", "b-q4_0.gguf"):
        (tmp_path / name).write_bytes(b"junk")
    assert ggbench("plan", tmp_path, *CARD).code == 5
    refused = ggbench("plan", "qwen1.5-0.5b", "q2_k", *CARD, "--type-v", "q8_0", "--flash-attn", "off")
    assert refused.code == 2
    assert "--flash-attn on" in refused.err
    ignored = ggbench("plan", "qwen1.5-0.5b", "q2_k", *CARD, "--n-cpu-moe", "4")
    assert ignored.code == 2
    assert "has no expert tensors for --n-cpu-moe" in ignored.err


def test_a_quantized_cache_and_flash_attention(ggbench: Run) -> None:
    """q8_0 stores 32 numbers in 34 bytes, 34/64 of f16, and CUDA copies one layer's to f16 for a prompt."""
    options = ("plan", "qwen1.5-4b", "q4_k_m", "--gpu", "4090", "--n-ctx", "32768", "--json")
    [plain] = ggbench(*options).json["rows"]
    [quantized] = ggbench(*options, "--type-k", "q8_0", "--type-v", "q8_0").json["rows"]
    [without] = ggbench(*options, "--flash-attn", "off").json["rows"]
    assert quantized["kv_bytes"] == plain["kv_bytes"] * 34 / 64
    assert quantized["planned_n_ctx"] > 1.75 * plain["planned_n_ctx"]
    assert (plain["flash_attn"], without["flash_attn"]) == (True, False)
    assert without["compute_bytes"] > 4 * plain["compute_bytes"]
    assert without["planned_n_ctx"] < plain["planned_n_ctx"]


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (("-ncmoe", "12"), "--n-cpu-moe 12"),
        (("-cmoe",), "--cpu-moe"),
        (("-ot", r"\.ffn_down_exps=CPU"), r"--override-tensor '\.ffn_down_exps=CPU'"),
    ],
)
def test_experts_and_overrides_leave_the_gpu(ggbench: Run, options: tuple[str, ...], written: str) -> None:
    words = ("plan", "qwen1.5-moe-a2.7b", "q4_k_m", "--vram", "12GiB", "--json")
    [whole] = ggbench(*words).json["rows"]
    [split] = ggbench(*words, *options).json["rows"]
    assert split["device_weight_bytes"] < whole["device_weight_bytes"] - (1 << 30)
    assert split["device_weight_bytes"] + split["host_weight_bytes"] == (
        whole["device_weight_bytes"] + whole["host_weight_bytes"]
    )
    assert split["planned_n_ctx"] > whole["planned_n_ctx"]
    assert written in split["command"]


def test_what_would_fit_is_named_and_does(ggbench: Run) -> None:
    asked = ("plan", "qwen1.5-7b", "--vram", "12GiB", "--reserve", "0", "-c", "16384")
    ran = ggbench(*asked, "q8_0", "--json")
    [row] = ran.json["rows"]
    assert (ran.code, ran.json["alternative"]["quant"]) == (3, "q4_0")
    for change in row["changes"][:3:2]:
        words = (change["options"] or "").split()
        again = ggbench(*asked, change["quant"] or "q8_0", *words, "--json")
        assert (change["fits"], again.code) in ((True, 0), (False, 3)), change
        [planned] = again.json["rows"]
        assert (planned["needed_bytes"], planned["left_bytes"]) == (change["needed_bytes"], change["left_bytes"])
        assert planned["planned_n_ctx"] == change["planned_n_ctx"], change


def test_what_to_type_if_nothing_fits_is_a_plan_that_fits(ggbench: Run) -> None:
    """The second line, pasted."""
    ran = ggbench("plan", "qwen1.5-7b", "q8_0", "--vram", "12GiB", "--reserve", "0", "-c", "16k")
    words = shlex.split(ran.out.splitlines()[1])
    assert (ran.code, words[0], ggbench(*words[1:]).code) == (3, "ggbench", 0)


def test_remedies_assume_as_much_main_memory_as_pick_does(ggbench: Run) -> None:
    """72 GiB do not fit beside 12 GiB in the 32 GiB that are assumed; with 128 GiB they do."""
    asked = ("plan", "qwen2.5-72b", "q8_0", "--gpu", "rtx-3060")
    ran, larger = ggbench(*asked), ggbench(*asked, "--ram", "128GiB@50GB/s")
    assert "-ngl" not in ran.out and "32 GiB of DDR4-3200" in ran.out
    assert "-ngl 1" in larger.out and "assumed" not in larger.out


def test_a_projector_takes_of_the_budget(ggbench: Run, projector: Path, tiny_twin: Path) -> None:
    asked = ("plan", "qwen1.5-0.5b", "q4_k_m", *CARD, "--json")
    plain, beside = ggbench(*asked).json, ggbench(*asked, "--mmproj", projector).json
    assert beside["machine"]["mmproj_bytes"] == 4 << 20
    assert beside["machine"]["budget_bytes"] == plain["machine"]["budget_bytes"] - (4 << 20)
    assert beside["rows"][0]["left_bytes"] == plain["rows"][0]["left_bytes"] - (4 << 20)
    assert beside["rows"][0]["needed_bytes"] == plain["rows"][0]["needed_bytes"]
    assert f"--mmproj {projector}" in beside["rows"][0]["command"]
    shown = ggbench(*asked[:-1], "--mmproj", projector, "-np", "4", "--why").out
    assert re.search(r"projector +4\.00 MiB", shown) and "all users at 2k" in shown
    picked = ggbench("pick", "qwen1.5-0.5b", "q4_0", *CARD, "--mmproj", projector, "--json").json
    assert f"--mmproj {projector} " in picked["commands"]["llama_server"]
    refused = ggbench(*asked, "--mmproj", tiny_twin)
    assert (refused.code, refused.out) == (5, "")


def test_a_model_over_two_cards_by_device(ggbench: Run) -> None:
    """A 70B that one card does not hold; nothing given twice is dropped."""
    asked = ("plan", "llama-3.1-70b", "q4_k_m", "-c", "16k", "--json")
    found = [ggbench(*asked, *gpus).json for gpus in (("--gpu", "rtx-3090x2"), ("--gpu", "rtx-3090") * 2)]
    assert found[0]["rows"][0]["devices"] == found[1]["rows"][0]["devices"]
    [row] = found[0]["rows"]
    first, second, host = row["devices"]
    assert (first["device"], second["device"], host["device"]) == ("CUDA0", "CUDA1", "CPU")
    assert first["name"] == second["name"] == "NVIDIA GeForce RTX 3090"
    assert first["weight_bytes"] + second["weight_bytes"] == row["device_weight_bytes"]
    assert row["left_bytes"] == min(first["left_bytes"], second["left_bytes"]) > 0
    assert ggbench(*asked, "--gpu", "rtx-3090x2", "-ts", "1,1,1").code == 2


def test_experts_in_main_memory_have_memory_and_speed_of_both(ggbench: Run) -> None:
    asked = ("plan", "qwen3-30b-a3b", "q4_k_m", "--gpu", "rtx-3060", "-c", "16k", "--n-cpu-moe", "24", "--json")
    [row] = ggbench(*asked, "--ram", "32GiB@50GB/s").json["rows"]
    card, host = row["devices"]
    assert (row["fits"], card["left_bytes"] > 0, host["left_bytes"] > 0) == (True, True, True)
    assert card["weight_bytes"] + host["weight_bytes"] == row["weight_bytes"]
    slower = ggbench(*asked, "--ram", "32GiB@25GB/s").json["rows"][0]
    fast, slow = ((each["limit_tok_s"], each["expected"]["value"]) for each in (row, slower))
    assert all(one > other > one / 2 for one, other in zip(fast, slow, strict=True))
    too_small = ggbench(*asked, "--ram", "8GiB@50GB/s")
    assert (too_small.code, too_small.json["rows"][0]["devices"][1]["left_bytes"] < 0) == (3, True)


@pytest.mark.parametrize("shares", [(), ("-kvu",)], ids=["equal parts", "one cache"])
def test_slots_take_what_llama_cpp_gives_each(ggbench: Run, shares: tuple[str, ...]) -> None:
    """The theory counts the same bytes: windows for each slot, or for all in one cache, and every slot's states."""
    asked = ("plan", "gemma-3-1b", "q4_k_m", "--gpu", "80GiB", "-c", "16k", "-np", "4", *shares, "--json")
    [row] = ggbench(*asked).json["rows"]
    assert row["n_ctx_slot"] == (16384 if shares else 4096)
    assert row["theory_kv_bytes"] == pytest.approx(row["kv_bytes"], abs=1 << 16)
    assert row["output_bytes"] % 4 == 0
    assert "--parallel 4" in row["command"]


def test_a_published_mixture_has_its_published_size(ggbench: Run) -> None:
    """The allocator gets the header of the plain type; what is planned of the weights is scaled."""
    words = ("plan", "qwen3.5-0.8b", "--gpu", "8GiB@100GB/s")
    [mixture] = ggbench(*words, "ud-iq2_xxs", "--json").json["rows"]
    [plain] = ggbench("plan", "twin:qwen3.5-0.8b", *words[2:], "iq2_xxs", "--json").json["rows"]
    assert mixture["file_bytes"] == 338_300_000
    more = mixture["file_bytes"] - plain["file_bytes"]
    assert mixture["weight_bytes"] == pytest.approx(plain["weight_bytes"] + more, abs=1000)
    assert mixture["kv_bytes"] == plain["kv_bytes"]
    assert any("in proportion to llama.cpp's iq2_xxs" in note for note in mixture["notes"])


def test_an_unpublished_mixture_has_a_typical_size(ggbench: Run) -> None:
    """It is marked as an estimate; the name of no quant is still an error."""
    words = ("plan", "qwen1.5-0.5b", "ud-q4_k_xl", "--gpu", "8GiB@100GB/s")
    [row] = ggbench(*words, "--json").json["rows"]
    [plain] = ggbench("plan", "qwen1.5-0.5b", "q4_k_m", *words[3:], "--json").json["rows"]
    assert 1 < row["file_bytes"] / plain["file_bytes"] < 1.05
    assert any("typical" in note and "q4_k_m" in note for note in row["notes"])
    assert "~" in ggbench(*words, "--why").out
    unknown = ggbench("plan", "qwen1.5-0.5b", "ud-q9_k")
    assert (unknown.code, unknown.err.count("\n")) == (2, 2)


def test_users_are_told_their_own_speed_and_that_of_all(ggbench: Run) -> None:
    """A step reads the weights once and the cache of each; one user alone reads one."""
    words = ("plan", "qwen1.5-0.5b", "q8_0", "--gpu", "24GiB@1000GB/s", "-c", "16k")
    plain, slots = (ggbench(*words, *more, "--json").json["rows"][0] for more in ((), ("-np", "4")))
    assert plain["expected_together"] is None
    alone, together = (slots[key]["value"] for key in ("expected", "expected_together"))
    assert alone < together < 4 * alone
    shared = ggbench(*words, "-np", "4", "-kvu", "--json").json["rows"][0]
    assert shared["limit_tok_s"] < slots["limit_tok_s"], "one user may fill the whole cache"


def test_slots_with_less_than_the_padding_each(ggbench: Run) -> None:
    refused = ggbench("plan", "qwen1.5-0.5b", "q2_k", "-np", "4", "-c", "3")
    assert (refused.code, refused.out) == (2, "")
    assert "an n_ctx of 3 one of 1024" in refused.err
    assert ggbench("plan", "qwen1.5-0.5b", "q2_k", "-np", "0").code == 2


def test_experts_in_main_memory_are_proposed_as_they_fit(ggbench: Run) -> None:
    asked = ("plan", "qwen3-30b-a3b", "q4_k_m", "--vram", "16GiB", "--reserve", "0", "--json")
    [row] = ggbench(*asked).json["rows"]
    assert [change["change"] for change in row["changes"] if change["fits"]] == ["n_cpu_moe", "quant", "n_gpu_layers"]
    option, number = row["changes"][0]["options"].split()
    placed = ggbench(*asked, option, number)
    host = placed.json["rows"][0]["devices"][-1]
    assert (placed.code, row["changes"][0]["host_bytes"]) == (0, host["needed_bytes"])


def test_weights_copied_from_main_memory_count_by_their_own_types(ggbench: Run) -> None:
    """A GPU's compute buffer holds copies of the experts it reads for prompts, larger ones of a larger quant."""
    asked = ("plan", "qwen1.5-moe-a2.7b", "--vram", "16GiB", "-ncmoe", "12", "--json")
    compute = {row["quant"]: row["compute_bytes"] for row in ggbench(*asked, "q8_0", "q2_k").json["rows"]}
    [alone] = ggbench(*asked, "q2_k").json["rows"]
    assert alone["compute_bytes"] == compute["q2_k"]
    assert compute["q2_k"] < compute["q8_0"]


@pytest.mark.parametrize(("options", "clamped"), [(("-c", "256"), 256), (("-b", "64"), 64)])
def test_the_physical_batch_is_shown_as_llama_cpp_clamps_it(
    ggbench: Run, tiny_twin: Path, options: tuple[str, ...], clamped: int
) -> None:
    assert re.search(rf"n_ubatch +{clamped}\n", ggbench("plan", tiny_twin, *CARD, *options, "--why").out)


def test_gpu_options_without_a_gpu_are_reported(ggbench: Run, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", tuple)
    memory = ("plan", tiny_twin, "--bandwidth", "100GB/s", "-mg", "0")
    ignored = (
        "the plan is for main memory, so --n-gpu-layers and --main-gpu had no effect; --gpu and --vram plan for a GPU"
    )
    assert ignored in ggbench(*memory, "-ngl", "5").err
    assert "ignored" not in ggbench(*memory, "-ngl", "0").err
    assert "ignored" not in ggbench(*memory, "--vram", "4GiB", "-ngl", "5").err


def test_nothing_is_left_behind(ggbench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No twin, no run and no temporary file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ggbench("plan", "qwen1.5-0.5b", "q2_k", *CARD).code == 0
    assert list(tmp_path.iterdir()) == []
    assert not paths.twins_dir().exists() and not paths.results_file().exists()


@pytest.mark.parametrize(
    ("words", "card", "name"),
    [
        (("-sm", "none"), "rtx-3090", "CUDA0"),
        (("-sm", "none", "-mg", "1"), "rtx-3060", "CUDA1"),
        (("-dev", "cuda1"), "rtx-3060", "CUDA1"),
    ],
)
def test_one_card_of_two_holds_everything_without_a_split(
    ggbench: Run, words: tuple[str, ...], card: str, name: str
) -> None:
    """`-sm none` uses the first GPU, or that of `-mg`; a screen is on the first."""
    asked = ("plan", "qwen3-4b", "q4_k_m", "-c", "4k", "--json")
    [row] = ggbench(*asked, "--gpu", "rtx-3090", "--gpu", "rtx-3060", *words).json["rows"]
    [alone] = ggbench(*asked, "--gpu", card).json["rows"]
    (own, host), (single, beside) = row["devices"], alone["devices"]
    assert (own["device"], own["name"], own["needed_bytes"]) == (name, single["name"], single["needed_bytes"])
    assert host == beside


def test_a_split_by_tensors_divides_every_layer(ggbench: Run) -> None:
    """Each card has all layers, half of the weights and of the cache, a whole compute buffer; one draws a desktop."""
    asked = ("plan", "qwen3-30b-a3b", "q8_0", "-c", "32k", "--gpu", "rtx-3090x2", "--json")
    [by_layers], [by_tensors] = (ggbench(*asked, "-sm", mode).json["rows"] for mode in ("layer", "tensor"))
    first, second, _ = by_tensors["devices"]
    differing = {name: second[name] for name in ("device", "usable_bytes", "left_bytes", "reserve_bytes")}
    assert first | differing == second
    assert by_tensors["kv_bytes"] == by_layers["kv_bytes"] == first["kv_bytes"] * 2
    assert first["compute_bytes"] > 100 << 20
    assert by_tensors["limit_tok_s"] == pytest.approx(2 * by_layers["limit_tok_s"], rel=0.02)
    assert by_tensors["expected"]["high"] < by_tensors["limit_tok_s"]


def test_a_split_by_rows_that_llama_cpp_no_longer_has(ggbench: Run) -> None:
    ran = ggbench("plan", "qwen3-4b", "q4_k_m", "--gpu", "rtx-3090x2", "-sm", "row")
    assert (ran.code, "-sm tensor" in ran.err) == (2, True)


def test_machines_are_compared_by_the_session_that_was_asked_for(ggbench: Run) -> None:
    words = ("plan", "qwen3-8b", "q4_k_m", "--gpu", "rtx-3060", "--or", "rtx-3090", "--workload", "coding", "-c", "40k")
    found = ggbench(*words, "--json").json
    here, other = (each["rows"][0]["session"]["total_s"]["value"] for each in found["machines"])
    [choice] = found["choices"]
    assert choice["session"] == "coding" and choice["lead"] == pytest.approx(here / other)
    assert "--workload coding" in found["machines"][0]["rows"][0]["command"]
