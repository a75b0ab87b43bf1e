"""`ggbench check`: verdicts and findings of pasted commands, by llama.cpp's own allocator, and what it refuses."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from ggbench.cli.main import cli
from ggbench.engines.llama.command_line import parse_command
from tests.cli.conftest import Run

pytestmark = pytest.mark.llama

LINES = tomllib.loads((Path(__file__).parents[1] / "data/command_lines.toml").read_text("utf-8"))["line"]
ALSO = {
    "unused_room": {"unused_room", "unused_context", "cache_without_need"},
    "cache_without_need": {"cache_without_need", "unused_room"},
    "no_effect": {"no_windows", "dense", "undrafted", "no_tensor", "covered", "gone"},
}
"""Findings of the program that an expert's words may mean, where they are not its own."""
JUDGED = {(each["verdict"], *sorted(each["findings"])): each for each in LINES}
"""A line of each judgement: the last, so that none repeats another."""
CARD = ("--gpu", "rtx-3060", "--ram", "64GiB@50GB/s")


def kinds(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["kind"], each["key"]) for each in document["findings"]}


ROOM = ("spares", "unused_context")


@pytest.mark.parametrize(
    ("line", "gpu", "code", "found"),
    [
        ("-m Qwen3-8B-Q4_K_M.gguf -ngl 99 -c 40960 -np 1 -fa on", "rtx-3060", 0, set()),
        ("-m Qwen3-8B-Q4_K_M.gguf -ngl 20 -c 16384 -np 1", "rtx-3060", 0, {("gains", "unused_room"), ROOM}),
        ("-m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -ncmoe 40 -c 16384 -np 1", "rtx-3060", 0,
         {("gains", "unused_room"), ("gains", "small_ubatch")}),
        ("-m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -ot .ffn_.*_exps.=CPU -c 16384 -np 1 -ub 2048", "rtx-3090", 0,
         {("gains", "unused_room"), ROOM}),
        ("-m Qwen3-8B-Q4_K_M.gguf -ngl 99 -c 16384 -np 2", "rtx-3060", 0, {("divides", "context_per_slot"), ROOM}),
        ("-m Qwen3-8B-Q4_K_M.gguf -ngl 99 -c 65536 -np 1 -ctk q8_0 -ctv q8_0", "rtx-3090", 0,
         {("wastes", "beyond_training"), ("wastes", "cache_without_need")}),
        ("-m Qwen3-8B-Q4_K_M.gguf -ngl 99 -c 16384 -np 1 -fa off", "rtx-3090", 0, {("wastes", "flash_attn"), ROOM}),
        ("-m Qwen3-8B-Q4_K_M.gguf -c 16384 -np 1 -fa off -ctk q8_0 -ctv q8_0 -ngl 99", "rtx-3090", 3, {("refuses",
         "needs_flash"), ("wastes", "cache_without_need"), ROOM}),
        ("-m Qwen3-8B-Q4_K_M.gguf -c 16384 -np 1 -ctk q8_0 -ngl 99", "rtx-3090", 0, {("bites", "not_decoded"), ROOM}),
        ("-m Qwen3-8B-Q4_K_M.gguf -c 40960 -np 1 -ctk q5_1 -ctv q5_1", "rtx-3060", 0, {("bites", "not_decoded")}),
        ("-m Qwen3-32B-Q4_K_M.gguf -ngl 99 -c 16384 -np 1", "rtx-3060", 3, {("fits", "fits_with")}),
        ("-m Qwen3-8B-Q4_K_M.gguf -c 8192 -np 1 --no-mmap -ncmoe 4 -ub 4096 -dt 0.1 --draft 4", "rtx-3090", 3,
         {("refuses", "gone"), ("idle", "dense"), ("idle", "gone"), ROOM}),
    ],
)  # fmt: skip
def test_what_an_expert_would_find(ggbench: Run, line: str, gpu: str, code: int, found: set[tuple[str, str]]) -> None:
    ran = ggbench("check", f"llama-server {line}", "--gpu", gpu, "--ram", "64GiB@50GB/s", "--json")
    assert ran.code == code, ran.err
    assert kinds(ran.json) == found


@pytest.mark.parametrize(
    "line", [pytest.param(each, marks=pytest.mark.slow if n % 4 else ()) for n, each in enumerate(JUDGED.values())]
)
def test_a_line_of_a_public_thread_is_judged_as_by_an_expert(ggbench: Run, line: dict[str, Any]) -> None:
    """It fits if the expert says so, and what the expert names is among the findings."""
    machine = [word for name in ("gpu", "ram") if line.get(name) for word in (f"--{name}", line[name])]
    ran = ggbench("check", line["line"], line["model"], line["quant"], *machine, "--json")
    is_refused = any(kind == "refuses" for kind, _ in kinds(ran.json))
    assert (ran.json["row"]["fits"], ran.code) == (line["verdict"] != "too_large", 3 * is_refused), ran.err
    assert bool(ran.json["adapted"]) is (line["verdict"] == "auto")
    keys = {key for _, key in kinds(ran.json)}
    assert all(keys & ALSO.get(each, {each}) for each in line["findings"]), keys
    assert len(ran.json["findings"]) <= 7
    if ran.json["better"]:
        again = ggbench("check", ran.json["better"], line["model"], line["quant"], *machine, "--json")
        assert again.json["row"]["fits"] and not again.json["better"], again.json["findings"]
        assert "gains" not in {kind for kind, _ in kinds(again.json)}


@pytest.mark.parametrize("line", LINES)
def test_a_pasted_line_is_to_plan_what_the_same_options_of_ggbench_are(line: dict[str, Any]) -> None:
    """The same values of all options, hence the same document."""
    plan = cli.get_command(click.Context(cli), "plan")
    assert plan is not None
    parsed = parse_command(line["line"])
    named = ("--model", "--hf-repo", "--cache-ram", "--mmproj-auto", "--mmproj")
    pasted = [word for each in parsed.given if each.option.name not in named for word in each.words]
    own, _ = replace(parsed, given=tuple(each for each in parsed.given if each.option.name not in named)).words(
        {flag for param in plan.params for flag in param.opts}
    )
    ours, theirs = (plan.make_context("plan", ["m", "q", *words]).params for words in (own, pasted))
    assert ours == theirs


def test_the_better_command_is_better(ggbench: Run) -> None:
    """It fits, is as fast as the finding says, and has what was right as it was typed."""
    line = "llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 --n-cpu-moe 40 -c 16k --no-mmap -np 1 --jinja"
    first = ggbench("check", line.replace("16k", "16384"), *CARD, "--json").json
    gain = next(each["gain"] for each in first["findings"] if each["key"] == "unused_room")
    better = first["better"]
    assert better.startswith("llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -c 16384 -np 1 --jinja")
    assert "--n-cpu-moe 40" not in better and "--no-mmap" not in better and "-lm none" in better
    second = ggbench("check", better, *CARD, "--json")
    assert second.code == 0 and not second.json["better"]
    speeds = [each["row"]["expected"]["value"] for each in (second.json, first)]
    assert speeds[0] / speeds[1] == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize(
    ("line", "first", "speed", "better"),
    [
        ("llama-server -m Qwen3-8B-Q4_K_M.gguf -c 40960 -np 1 -fa off -ctv q8_0 -ctk q8_0 --draft-max 4 --mlock",
         "It does not start, as today's llama-server refuses", "tok/s",
         "llama-server -m Qwen3-8B-Q4_K_M.gguf -c 40960 -np 1 --spec-draft-n-max 4 -lm mmap+mlock"),
        ("cd x && docker run --gpus all -e LLAMA_ARG_CTX_SIZE=16384 -v $PWD:/models ghcr.io/ggml-org/llama.cpp:server"
         " -m /models/Qwen3-8B-Q4_K_M.gguf -np 1 -ctk q8_0", "It fits with", "speed is unknown",
         'docker run --gpus all -v "$PWD:/models" ghcr.io/ggml-org/llama.cpp:server -m /models/Qwen3-8B-Q4_K_M.gguf '
         "-np 1 -c 16384"),
    ],
)  # fmt: skip
def test_what_is_refused_or_slow_is_replaced_and_the_rest_stays_as_typed(
    ggbench: Run, line: str, first: str, speed: str, better: str
) -> None:
    *said, command = ggbench("check", line, *CARD).out.partition("\n\n")[0].splitlines()
    assert said[0].startswith(first) and speed in " ".join(said)
    assert sorted(shlex.split(command)) == sorted(shlex.split(better))


@pytest.mark.parametrize(("gpu", "remedy"), [("m4-max-36gb", "ggbench pick finds"), ("m4-max-48gb", "q3_k_m does")])
def test_what_does_not_fit_is_told_with_one_remedy_or_that_there_is_none(ggbench: Run, gpu: str, remedy: str) -> None:
    """The remedy is that of plan, or a smaller quant; nothing is said of waste."""
    line = "llama-server -hf unsloth/Llama-3.3-70B-Instruct-GGUF:q4_k_m -ngl 99 -c 16384 -np 1"
    ran = ggbench("check", line, "--gpu", gpu)
    assert ran.code == 3 and "nothing is wasted" not in ran.out
    assert f"No single change makes q4_k_m fit; {remedy}" in ran.out


def test_what_is_not_given_is_as_llama_server_has_it(ggbench: Run) -> None:
    """Four slots of one cache, and of the training context what leaves 1 GiB of the card free."""
    found = ggbench("check", "llama-server -m Qwen3-14B-Q4_K_M.gguf", "--gpu", "rtx-3060", "--json").json
    setup = found["row"]["setup"]
    assert (setup["n_seq_max"], setup["kv_unified"], found["row"]["fits"]) == (4, True, True)
    assert 4096 <= setup["n_ctx"] < 40_960 and f"-c {setup['n_ctx']}" in found["adapted"]
    fixed = ggbench("check", "llama-server -m Qwen3-14B-Q4_K_M.gguf -fit off", "--gpu", "rtx-3060", "--json")
    assert fixed.json["row"]["setup"]["n_ctx"] == 40_960


def test_the_model_of_a_line(ggbench: Run, tiny_twin: Path) -> None:
    """A file here is itself, another that of the catalog with its name, else MODEL and QUANT say which."""
    here = ggbench("check", f"llama-server -m {shlex.quote(str(tiny_twin))} -c 512", *CARD, "--json").json
    assert (here["row"]["file"], here["notes"][0]) == (str(tiny_twin), "")
    named = ggbench("check", "llama-server -m /x/Qwen3-8B-UD-Q4_K_XL.gguf -c 512", *CARD, "--json").json
    assert (named["row"]["model"], named["row"]["provenance"]) == ("qwen3-8b", "catalog")
    assert "Qwen3-8B-UD-Q4_K_XL.gguf" in named["notes"][0]
    unknown = ggbench("check", "llama-server -m /x/mine.gguf -c 512", *CARD)
    assert unknown.code == 2 and "MODEL QUANT" in unknown.err
    assert ggbench("check", "llama-server -m /x/mine.gguf -c 512", "qwen3-8b", "q4_k_m", *CARD).code == 0


def test_a_line_from_stdin_and_one_without_quotes(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("llama-server \\\n -m Qwen3-8B-Q4_K_M.gguf \\\n -c 512"))
    assert ggbench("check", *CARD).code == 0
    assert ggbench("check", *CARD, "--", "llama-server", "-m", "Qwen3-8B-Q4_K_M.gguf", "-c", "512").code == 0
    unquoted = ggbench("check", "llama-server", "-ngl", "99")
    assert unquoted.code == 2 and "quote the line" in unquoted.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"llama-server -m \xff.gguf"), "utf-8"))
    assert ggbench("check", *CARD).code == 2


def test_a_pasted_line_is_planned_like_the_same_options_of_ggbench(ggbench: Run) -> None:
    pasted = (
        "-m qwen3-30b-a3b q4_k_m --ctx-size 16384 --cache-type-k q8_0 --cache-type-v q8_0 -fa 1 -ngl all --jinja -cmoe"
    )
    own = "qwen3-30b-a3b q4_k_m -c 16k -ctk q8_0 -ctv q8_0 -fa on --cpu-moe"
    ran = ggbench("plan", *pasted.split(), *CARD, "--json")
    assert ran.json == ggbench("plan", *own.split(), *CARD, "--json").json
    assert ran.err == "ignored: --jinja\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "empty"), ("llama-server", "names no model"), ("llama-server -m qwen3-8b-q4_k_m.gguf -c many", "many"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -ctk q3_0", "q3_0"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -fa maybe", "maybe"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -ot (.+)+x=CPU", "too long to match"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -ot .*.*.*.*.*x=CPU", "too long to match"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -ot x{9999999999}=CPU", "not a regular expression"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused(ggbench: Run, line: str, why: str) -> None:
    ran = ggbench("check", line, *CARD)
    assert ran.code == 2 and why in ran.err.splitlines()[0] and len(ran.err.splitlines()) <= 2
