"""The comparison behind scripts/bench_pull; exit code 1 where the ratio of the medians is above the aim.

Both are whole commands, imports and listing included, into fresh caches on the same disk, in turns that begin with the
one and the other.
The Hub runs in a process of its own. `hf download` checks no hash of what it gets over plain HTTP.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
REPO, FILE, QUANT = "org/large-GGUF", "large-q8_0.gguf", "q8_0"
AIM = 1.1


def main() -> int:
    """Time both in turns and print every run, the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10**9, metavar="BYTES")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="work on this disk")
    asked = parser.parse_args()
    python = Path(sys.executable)
    ways = {
        "ggbench pull": [str(python), "-P", "-m", "ggbench", "pull", f"hf:{REPO}", QUANT, "--quiet"],
        "hf download": [str(python.with_name("hf")), "download", REPO, FILE],
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=asked.dir) as folder, serve(Path(folder), asked.size) as url:
        for number in range(asked.repeat):
            for way in sorted(ways, reverse=number % 2 == 1):
                seconds[way].append(_time(ways[way], url, Path(folder) / "caches"))
                print(f"{number + 1} {way:14} {seconds[way][-1]:6.2f} s", flush=True)
    ours, theirs = (statistics.median(each) for each in seconds.values())
    print(f"median of {asked.repeat}, {asked.size / 1e9:.2f} GB: {ours:.2f} s against {theirs:.2f} s")
    print(f"ratio {ours / theirs:.2f}, aim {AIM} or less")
    return 0 if ours / theirs <= AIM else 1


@contextmanager
def serve(folder: Path, n_bytes: int) -> Iterator[str]:
    """A Hub in a process of its own with one file of random bytes; its address."""
    file = folder / "repos" / REPO / FILE
    file.parent.mkdir(parents=True)
    write_random(file, n_bytes)
    command = [sys.executable, "-m", "tests.fakes.hub", "--root", str(folder / "repos")]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def write_random(path: Path, n_bytes: int) -> None:
    """A file that does not compress, the same each time."""
    source = random.Random(n_bytes)
    with path.open("wb") as file:
        for begin in range(0, n_bytes, 1 << 20):
            file.write(source.randbytes(min(1 << 20, n_bytes - begin)))


def environment(url: str, caches: Path) -> dict[str, str]:
    """What a command needs to ask this Hub, and to keep all it keeps in that folder."""
    settled = {
        key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "XDG_"))
    }
    return settled | {
        "HF_ENDPOINT": url,
        "HF_HOME": str(caches / "huggingface"),
        "XDG_CACHE_HOME": str(caches / "cache"),
        "XDG_DATA_HOME": str(caches / "data"),
        "PYTHONPATH": str(CHECKOUT),
    }


def _time(command: list[str], url: str, caches: Path) -> float:
    shutil.rmtree(caches, ignore_errors=True)
    os.sync()  # what one way left to be written is not to slow the other
    started = time.perf_counter()
    ended = subprocess.run(command, env=environment(url, caches), capture_output=True, text=True, cwd=CHECKOUT)
    seconds = time.perf_counter() - started
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
