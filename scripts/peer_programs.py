"""llama.cpp's own programs, built once from the source that llama-cpp-python carries, and how they are run.

They run with the libraries that ggbench loads, since two builds of one source differ in speed; only what these lack,
the programs themselves and llama.cpp's `common`, is that of the build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ggbench import paths
from ggbench.engines.llama.c_functions import llama_library
from scripts.llama_source import compile_llama, pinned_llama

CACHE = paths.caches_dir() / "peers"
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-perplexity", "llama-server", "llama-fit-params")


@dataclass(frozen=True, slots=True)
class Peers:
    """A folder of the PROGRAMS."""

    folder: Path

    def run(self, program: str, *words: object) -> tuple[str, float]:
        """Run a program to its end; returns all that it wrote, and the seconds. Raises SystemExit where it fails."""
        return timed([self.folder / program, *words], peer_environment())

    @property
    def version(self) -> str:
        """llama.cpp's version and commit as llama-server states them."""
        text, _ = self.run("llama-server", "--version")
        found = re.search(r"^version: (.+)$", text, re.MULTILINE)
        return found[1] if found else "unknown"


def peer_environment() -> dict[str, str]:
    """Return the variable that has a program load ggbench's llama.cpp."""
    return {"LD_LIBRARY_PATH": str(llama_library().parent)}


def timed(command: Iterable[object], environment: dict[str, str]) -> tuple[str, float]:
    """Run a command to its end; returns its stdout and stderr together, and its seconds. Raises SystemExit."""
    words = [str(word) for word in command]
    started = time.perf_counter()
    done = subprocess.run(
        words, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout, seconds


def find_or_build(folder: Path | None, jobs: int, source: Path | None = None) -> Peers:
    """Return the programs of a folder, else those of ggbench's cache, built where they are not there yet.

    `source` is llama-cpp-python's sdist, which is downloaded where it is None. Raises SystemExit.
    """
    if folder is not None:
        if missing := [name for name in PROGRAMS if not (folder / name).exists()]:
            sys.exit(
                f"Error: {folder} has no {', '.join(missing)}\nHint: give the folder that holds all programs"
            )
        return Peers(folder)
    build = CACHE / pinned_llama().replace("==", "-")
    compile_llama(build, PROGRAMS, (), jobs, source)
    return Peers(build / "bin")
