"""The answer comes first and the output is short: lines of every command, several widths, a pipe, Markdown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ggbench import paths
from tests.cli.conftest import FakeMachine, Ran, Run
from tests.fakes.llama_server import install
from tests.fakes.measured import fill
from tests.fakes.scores import scores, trained_folder
from tests.fakes.small_machine import SmallMachine

PICK = ["pick", "qwen3-30b-a3b", "--gpu", "rtx-3060", "--ram", "32GiB@50GB/s", "-c", "32k"]
PLAN = ["plan", "llama-3.1-70b", "q4_k_m", "q5_k_m", "q3_k_m", "--gpu", "rtx-3090x2", "-c", "32k"]
WIDTHS = ("60", "80", "100", "200")

Ask = Callable[..., Ran]


@pytest.fixture
def ask(ggbench: Run, machine: FakeMachine, tiny_twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
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
            case "compare":
                fill(paths.results_file())
                return ["compare", "1", "3"]
            case "results":
                fill(paths.results_file())
                return ["results"]
        return [*task.split()]

    return lambda task, *options: ggbench(*words_of(task), *options)


@pytest.mark.parametrize(
    ("task", "most", "first"),
    [
        ("pick", 20, "Run "), ("plan", 24, "llama-3.1-70b"), ("decode", 14, "tiny"), ("prefill", 14, "tiny"),
        ("compare", 16, ""), ("quality", 14, ""), ("bench", 16, ""), ("maxctx", 12, "n_ctx"), ("forecast", 14, ""),
        ("speed", 20, ""), ("speculate", 20, ""), ("inspect", 20, "tiny"), ("results", 20, ""), ("doctor", 20, ""),
        ("limits --gpu rtx-3090 qwen3-14b", 20, ""), ("published --model qwen1.5-7b", 40, ""), ("", 20, ""),
    ],
)  # fmt: skip
def test_a_command_prints_its_answer_and_little_else(ask: Ask, task: str, most: int, first: str) -> None:
    ran = ask(task)
    lines = ran.out.splitlines()
    assert ran.code == 0, ran.err
    assert len(lines) <= most, ran.out
    assert lines[0].startswith(first)
    assert all(line == line.rstrip() and len(line) <= 100 for line in lines if not line.startswith("llama-server"))


@pytest.mark.parametrize("task", ["pick", "maxctx"])
def test_the_second_line_is_what_to_type(ask: Ask, task: str) -> None:
    assert ask(task).out.splitlines()[1].startswith("llama-server ")


@pytest.mark.parametrize("task", ["pick", "plan", "decode", "compare", "quality", "bench", "maxctx"])
def test_why_has_the_rest(ask: Ask, task: str) -> None:
    short, whole = ask(task).out.splitlines(), ask(task, "--why").out.splitlines()
    assert len(whole) > len(short)
    assert "--why" in short[-1] and not any("--why" in line for line in whole)


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
    header = next(line for line in lines if "quant" in line and "tok/s at 32k" in line)
    assert "limit" not in header
    assert any("~" in line for line in lines)


def test_a_pipe_has_no_width(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = ask("plan").out
    monkeypatch.delenv("COLUMNS")
    piped = ask("plan").out
    assert max(map(len, piped.splitlines())) > max(map(len, narrow.splitlines()))
