"""Every command line of the README that needs no GPU and no network, run: what it prints has the shape that is shown.

Outputs that no machine changes are generated, see `tests.readme`. The others are measured, on models that take
minutes: here a models.toml gives their names to models of the same kind that take a moment.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.gguf_file.twin import cached_twin
from tests.conftest import TINY
from tests.fakes.scores import with_tokenizer
from tests.readme import MEASURED, README, WIDTH

pytestmark = [pytest.mark.llama, pytest.mark.slow]

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_SMALL = """
[[model]]
id = "{id}"
n_layer = {n_layer}
n_embd = 256
n_head = 4
n_head_kv = 4
n_ff = 256
n_vocab = 1024
"""
_MODELS = {"qwen1.5-0.5b": 2, "qwen1.5-1.8b": 4, "qwen1.5-7b": 4}
"""Id and layers."""


def _shown() -> dict[str, list[str]]:
    """What the README shows below each command line."""
    lines: dict[str, list[str]] = {}
    for block in _BLOCK.findall(README.read_text(encoding="utf-8")):
        output: list[str] = []
        for text in block.splitlines():
            if text.startswith("$ "):
                output = lines[text[2:]] = []
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


def _assert_has_shape(printed: list[str], shown: list[str]) -> None:
    """Hold that the tables shown are printed: each header's words, and then each row by its first word, in this order.

    What sentences and notes say is decided by what was measured. A column that noise leaves unknown is left out.
    """
    rest = iter(printed)
    words = set(" ".join(printed).split())
    tables = [text for text in shown if "  " in text.strip()]
    assert tables, shown
    for text in tables:
        first, *others = text.split()
        found = next((line for line in rest if line.split()[:1] == [first]), None)
        assert found is not None, f"{text!r} is not in:\n" + "\n".join(printed)
        if not re.search(r"\d", "".join(others)):
            assert len(words.intersection(others)) > len(others) / 2, text


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("twins")


@pytest.fixture
def small_models(home: Path, twins: Path) -> None:
    config = home / "config" / "ggbench" / "models.toml"
    config.parent.mkdir(parents=True)
    config.write_text("".join(_SMALL.format(id=model, n_layer=n_layer) for model, n_layer in _MODELS.items()))
    (home / "cache" / "ggbench" / "twins").symlink_to(twins)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small_models")
def test_the_demo_shows_the_whole_way() -> None:
    printed = _run("ggbench demo -n 32")
    steps = [line.split()[2] for line in printed if line.startswith("$ ggbench ")]
    assert steps == ["pick", "bench", "compare", "speculate"]
    assert any(line.startswith("Run q") for line in printed)
    assert any(line.startswith("depth  k ") for line in printed)
    assert printed.index("What to type next:") > len(printed) / 2


@pytest.mark.timeout(300)
def test_what_is_measured_has_the_shape_that_is_shown(home: Path, twins: Path) -> None:
    folder = home / "models" / "smollm2"
    folder.mkdir(parents=True)
    for quant in ("q2_k", "q3_k_m", "q4_k_m", "q4_1"):
        with_tokenizer(cached_twin("tiny", TINY, quant, twins), folder / f"SmolLM2-135M-Instruct.{quant}.gguf")
    text = home / "text.txt"
    text.write_text("A short text, which single bytes make long enough. " * 8)
    shown, (decode, quality) = _shown(), (each.line for each in MEASURED.values())
    _assert_has_shape(_run(f"{quality} --text {text} -c 64 -t 1"), shown[quality])
    printed = _run(f"{decode} -n 64 -t 1")
    assert re.search(r"tok/s over 64 tokens", " ".join(printed))
    assert "latency of one token [ms]" in printed
    assert "latency of one token [ms]" in shown[decode]
