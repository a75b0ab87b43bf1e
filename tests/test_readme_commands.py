"""Every command line of the README that needs no GPU and no network, run: what it prints has the shape that is shown.

Outputs that no machine changes are generated, see `tests.readme`. The others were measured, on models that take
minutes: here a models.toml gives their names to models of the same kind that take a moment.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import README, SHOWN, WIDTH
from tests.real.conftest import smollm2 as smollm2  # a fixture

pytestmark = [pytest.mark.llama, pytest.mark.slow]

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"[~<>±≤!]*[+-]?\d[\d.,–]*")
_SMALL = """
[[model]]
id = "{id}"
n_layer = {n_layer}
n_embd = 512
n_head = 8
n_head_kv = 8
n_ff = 512
n_vocab = 1024
"""


def _shown() -> dict[str, list[str]]:
    """What the README shows below each command line."""
    lines: dict[str, list[str]] = {}
    for block in _BLOCK.findall(README.read_text(encoding="utf-8")):
        output: list[str] = []
        for text in block.splitlines():
            if text.startswith("$ "):
                output = lines[text[2:].partition("  #")[0].rstrip()] = []
            elif text != "...":
                output.append(text)
    return {line: output for line, output in lines.items() if line.startswith("ggbench ")}


def _run(line: str) -> list[str]:
    """Run a line in the home of this test; return both streams, in lines. Raises CalledProcessError."""
    words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in shlex.split(line)]
    environment = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    command = [sys.executable, "-P", "-m", *words]
    ran = subprocess.run(
        command, text=True, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return ran.stdout.splitlines()


def _key(text: str) -> str:
    """What a line begins with, whatever the numbers: `q8_0`, `twin:`, `n_ctx #`; a rule is one dash."""
    words = text.split() or [""]
    first = words[0] if re.match(r"[a-z]+\d", words[0]) else _NUMBER.sub("#", words[0])
    return re.sub("─+", "─", first)


def _assert_has_shape(printed: list[str], shown: list[str]) -> None:
    """Each line that is shown has one that begins alike, in this order; most words of a heading are printed somewhere.

    A column whose values are all alike is named below the table instead, and one that noise leaves unknown is left out.
    """
    rest = iter(printed)
    words = set(" ".join(printed).split())
    for number, text in enumerate(shown):
        if any(line.startswith("──") for line in shown[number + 1 : number + 3]):
            wanted = set(text.split())
            assert len(wanted & words) > len(wanted) / 2, text
        else:
            found = next((line for line in rest if _key(line) == _key(text)), None)
            assert found is not None, f"{text!r} is not in:\n" + "\n".join(printed)


@pytest.fixture
def small_models(home: Path) -> None:
    """Small models under the names of the README's."""
    config = home / "config" / "ggbench" / "models.toml"
    config.parent.mkdir(parents=True)
    small = [("qwen1.5-0.5b", 6), ("qwen1.5-7b", 4)]
    config.write_text("".join(_SMALL.format(id=model, n_layer=n_layer) for model, n_layer in small))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small_models")
def test_the_demo_shows_the_whole_way() -> None:
    """Plan, pick, twins and their decode, compare, each with its command line; then what to type next."""
    printed = _run("ggbench demo -n 250")
    steps = [line.split()[2] for line in printed if line.startswith("$ ggbench ")]
    assert steps == ["plan", "pick", "bench", "compare"]
    assert any(line.startswith("Run q") for line in printed)
    assert printed.index("What to type next:") > len(printed) / 2


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small_models")
def test_what_is_measured_has_the_shape_that_is_shown(home: Path) -> None:
    """bench, compare, report, maxctx and forecast, in the order of the README."""
    shown = _shown()
    measured = {line: text for line, text in shown.items() if line not in {each.line for each in SHOWN.values()}}
    for command in ("bench", "compare", "report", "maxctx", "forecast"):
        line = next(line for line in measured if line.startswith(f"ggbench {command} "))
        if command == "report":
            line = line.replace("report.html", str(home / "report.html"))
        printed = _run(f"{line} -t 1" if command in ("bench", "maxctx", "forecast") else line)
        if command == "compare":
            assert re.search(r"better in|no difference", " ".join(printed))
        elif command == "report":
            assert "</html>" in (home / "report.html").read_text(encoding="utf-8")
        else:
            # How many layers a forecast times is a column or a line below, as the width allows.
            _assert_has_shape(printed, [text for text in measured[line] if "twins of" not in text])


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_scored_text_has_the_shape_that_is_shown(home: Path, smollm2: Path) -> None:
    """Quality, with two short chunks: a trained model, and its quants as llama-quantize makes them."""
    from llama_cpp import llama_cpp as lib

    folder = home / "models" / "smollm2"
    folder.mkdir(parents=True)
    (folder / smollm2.name).symlink_to(smollm2)
    params = lib.llama_model_quantize_default_params()
    params.allow_requantize = True
    for quant in ("Q2_K", "Q3_K_M", "Q4_K_M"):
        params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{quant}")
        path = folder / f"SmolLM2-135M-Instruct.{quant}.gguf"
        assert lib.llama_model_quantize(str(smollm2).encode(), str(path).encode(), ctypes.byref(params)) == 0
    (line, shown), *others = ((line, text) for line, text in _shown().items() if line.startswith("ggbench quality"))
    assert others == []
    _assert_has_shape(_run(re.sub(r"--chunks \d+", "--chunks 2 -c 64", line)), shown)


def test_no_line_of_the_readme_is_left_out() -> None:
    """A command line that is added to the README is generated, or is run by a test of this file."""
    generated = {each.line for each in SHOWN.values()}
    assert {line.split()[1] for line in _shown() if line not in generated} == {
        "bench", "compare", "report", "maxctx", "forecast", "quality",
    }  # fmt: skip
