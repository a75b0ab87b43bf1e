"""The answer comes first and the output is short: lines of every command, several widths, a pipe, Markdown."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ggbench import paths
from tests.cli.conftest import FakeMachine, Ran, Run
from tests.fakes.llama_server import install
from tests.fakes.measured import fill
from tests.fakes.planted import PlantedMachine
from tests.fakes.scores import scores, trained_folder
from tests.fakes.small_machine import SmallMachine

SOME = ["q3_k_m", "q4_k_m", "q5_k_m"]
PICK = ["pick", "qwen3-30b-a3b", *SOME, "--gpu", "rtx-3060", "--ram", "32GiB@50GB/s", "-c", "32k"]
CHECK = [
    "check",
    "llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -ncmoe 40 -c 16384 -np 2",
    "--gpu",
    "rtx-3060",
]
PLAN = ["plan", "llama-3.1-70b", "q4_k_m", "q5_k_m", "q3_k_m", "--gpu", "rtx-3090x2", "-c", "32k"]
WIDTHS = ("60", "200")
TYPED = {"pick", "maxctx", "check"}
"""Tasks whose second line is what to type."""
REASONED = {"plan", "decode", "compare", "quality", "bench", "tune", "limits --gpu rtx-3090 qwen3-14b"}
"""More tasks of which --why has the rest."""

Ask = Callable[..., Ran]


@pytest.fixture
def ask(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ask]:
    """Run the task of a name at 100 columns with further options, on a machine that replays messages."""
    monkeypatch.setenv("COLUMNS", "100")
    (text := tmp_path / "prose.txt").write_text("some prose")

    def engines() -> list[object]:
        program = install(tmp_path)
        return ["--engine", f"llama-server={program}", "--engine", f"llama-server={program} --step-ns 5000000"]

    def words_of(task: str) -> list[object]:
        match task:
            case "pick":
                return [*PICK]
            case "plan":
                return [*PLAN]
            case "check":
                return [*CHECK]
            case "decode" | "prefill" | "forecast" | "inspect":
                return [task, tiny_twin]
            case "bench":
                return ["bench", tiny_twin, "-n", "300", "-r", "4", "-t", "1", *engines()]
            case "speed":
                return ["speed", tiny_twin, "--inputs", "1,512", "-n", "64"]
            case "maxctx":
                machine.answers |= {index: SmallMachine(2048, edge=8192).answer for index in range(20)}
                return ["maxctx", tiny_twin, "--memory-limit", "100MiB"]
            case "quality":
                machine.answers |= {0: scores(2.0), 1: scores(1.5)}
                return ["quality", trained_folder(tmp_path), "--text", text, "-c", "32", "-b", "64"]
            case "speculate":
                return ["speculate", tiny_twin, "--draft", tiny_twin, "-k", "1,3", "-d", "0"]
            case "tune":
                planted = PlantedMachine(7, {("threads", 1): 1.7}, {("flash_attn", "off"): 0.5}, noise=0.005)
                machine.answers |= dict.fromkeys(range(1000), planted.answer)
                clocked.enter_context(planted.clocked())
                return ["tune", tiny_twin, "--depth", "0,4096", "--within", "5m"]
            case "compare":
                fill(paths.results_file())
                return ["compare", "1", "3"]
            case "results":
                fill(paths.results_file())
                return ["results"]
        return [*task.split()]

    with contextlib.ExitStack() as clocked:
        yield lambda task, *options: ggbench(*words_of(task), *options)


@pytest.mark.parametrize(
    ("task", "most", "said"),
    [
        ("pick", 20, "Run q4_k_m with"), ("plan", 24, "llama-3.1-70b fits 2 x RTX 3090"),
        ("check", 20, "It fits with"),
        ("decode", 14, "tok/s over 10,000 tokens"), ("prefill", 14, "tok/s over a prompt"),
        ("compare", 16, "0.66 times"), ("quality", 14, "loses enough to notice"), ("bench", 16, "1.00 times"),
        ("maxctx", 12, "works: decoded at its end"), ("forecast", 14, "tok/s at a context of 4,096"),
        ("speed", 20, "tok/s as Qwen2.5 counts"), ("speculate", 20, "Drafts pay above"),
        ("tune", 16, "-fa off is"), ("inspect", 20, "tiny-q8_0: qwen2 with"), ("results", 20, "4 runs stored."),
        ("doctor", 20, "All well"), ("models", 36, "models in the catalog"),
        ("limits --gpu rtx-3090 qwen3-14b", 20, "RTX 3090 decodes qwen3-14b"),
        ("published qwen1.5-7b", 40, "rows from 2 sources."), ("", 20, "No model on this disk"),
    ],
)  # fmt: skip
def test_a_command_prints_its_answer_and_little_else(ask: Ask, task: str, most: int, said: str) -> None:
    ran = ask(task)
    lines = ran.out.splitlines()
    assert ran.code == 0, ran.err
    assert len(lines) <= most, ran.out
    assert said in lines[0]
    assert all(line == line.rstrip() and len(line) <= 100 for line in lines if not line.startswith("llama-server"))
    assert lines[1].startswith("llama-server ") or task not in TYPED
    if task in TYPED | REASONED:
        whole = ask(task, "--why").out
        assert whole.count("\n") > len(lines) and "--why" not in whole


@pytest.mark.parametrize("task", ["pick", "plan", "bench", "compare", "results"])
def test_markdown_is_rendered_as_tables_and_code(ask: Ask, task: str) -> None:
    text = ask(task, "--md").out
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<table>") >= 1
    assert not re.search(r"\|\s*--|  \|", re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)), html
    assert not any(line.startswith("|") and "  " in line for line in text.splitlines())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("task", ["pick", "plan"])
def test_an_estimate_outlives_a_bound_at_every_width(
    ask: Ask, task: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = ask(task).out.splitlines()
    speed = "tok/s at 32k"
    header = next(line for line in lines if "quant" in line and speed in line)
    assert "limit" not in header
    first, end = lines.index(header) + 1, header.index(speed) + len(speed)
    assert any(row[:end].split()[-1].startswith("~") for row in lines[first : first + 3])


def test_a_pipe_has_no_width(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = ask("plan").out
    monkeypatch.delenv("COLUMNS")
    piped = ask("plan").out
    assert max(map(len, piped.splitlines())) > max(map(len, narrow.splitlines()))
