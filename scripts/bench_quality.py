"""Wall time and figures of `ggbench quality` beside llama-perplexity's: same files, text and threads, alternating.

Without BASE: perplexity alone. With it: KL divergence, for which llama-perplexity needs two passes, one that writes the
base's logits and one that reads them; ggbench runs both models side by side. On a shared machine only the ratio is
meaningful. Exit code 1 where the median ratio is above the aim, or the figures differ by more than half a percent.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ggbench.catalog.texts import find_text
from ggbench.machine.cpu import default_threads

AIMS = {"PPL": 1.05, "KLD": 1.0}


def main() -> int:
    """Run the pairs and print them with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_perplexity", type=Path, help="path of llama-perplexity")
    parser.add_argument("file", type=Path)
    parser.add_argument("base", type=Path, nargs="?", help="file to compare with")
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    figure = "PPL" if asked.base is None else "KLD"
    print(f"{asked.file.name}, {asked.chunks} chunks, {asked.threads} threads")
    print(f"{'pair':>4} {'ggbench s':>10} {'llama-perplexity s':>19} {'ratio':>7} {figure:>10} {figure:>10}")
    ratios, differences = [], []
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-quality-") as folder:
        text = Path(folder) / "text.txt"
        text.write_text(find_text(None)[1], encoding="utf-8")
        for number in range(asked.pairs):
            ways = [_ggbench, _llama_perplexity] if number % 2 == 0 else [_llama_perplexity, _ggbench]
            found = {way: way(asked, text, Path(folder)) for way in ways}
            (own_s, own), (other_s, other) = found[_ggbench], found[_llama_perplexity]
            ratios.append(own_s / other_s)
            differences.append(abs(own / other - 1))
            print(
                f"{number + 1:4} {own_s:10.2f} {other_s:19.2f} {ratios[-1]:7.3f} {own:10.5f} {other:10.5f}", flush=True
            )
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f}, aim at most {AIMS[figure]}; {figure} differs by {max(differences):.2%} at most")
    return 0 if median <= AIMS[figure] and max(differences) <= 0.005 else 1


def _ggbench(asked: argparse.Namespace, text: Path, folder: Path) -> tuple[float, float]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "ggbench",
        "quality",
        str(asked.file),
        "--text",
        str(text),
        "--quiet",
        "--json",
    ]
    command += ["--chunks", str(asked.chunks), "-t", str(asked.threads)]
    command += ["--base", "none"] if asked.base is None else ["--base", str(asked.base)]
    with tempfile.TemporaryDirectory(dir=folder) as store:
        seconds, answer = _timed(command, {"XDG_DATA_HOME": store})
    found = json.loads(answer)
    return seconds, float(found["ppl"] if asked.base is None else found["kld_mean"])


def _llama_perplexity(asked: argparse.Namespace, text: Path, folder: Path) -> tuple[float, float]:
    chunks, threads = ["--chunks", str(asked.chunks)], ["-t", str(asked.threads)]
    if asked.base is None:
        seconds, answer = _timed([asked.llama_perplexity, "-m", asked.file, "-f", text, *chunks, *threads])
        return seconds, float(_number(r"PPL = ([\d.]+)", answer))
    logits = folder / "logits.dat"
    save = [asked.llama_perplexity, "-m", asked.base, "-f", text, *chunks, *threads, "--save-all-logits", logits]
    first_s, _ = _timed(save)
    compare = ["--kl-divergence", "--kl-divergence-base", logits]
    second_s, answer = _timed([asked.llama_perplexity, "-m", asked.file, *threads, *compare])
    return first_s + second_s, float(_number(r"Mean\s+KLD:\s+([\d.]+)", answer))


def _number(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text[-2000:]
    return match[1]


def _timed(command: list[object], environment: dict[str, str] | None = None) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return time.perf_counter() - started, done.stdout


if __name__ == "__main__":
    sys.exit(main())
