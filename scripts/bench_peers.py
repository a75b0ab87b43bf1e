"""ggbench beside llama.cpp's own programs, in alternation on the same files; prints the table of all ratios.

The programs are compiled once, from the source that llama-cpp-python carries, and kept in ggbench's cache folder; that
takes some minutes. --peers names a folder of built ones. Each ratio is ggbench's value over the peer's, so below 1
ggbench takes less, and is the median of the ratios of all rounds; the two sides take turns in going first. Results are
added to a file, so that figures can be measured one after the other (--only) when the machine is free; the table has
the last session of each row. On a shared machine only ratios are meaningful.

Exit code 1 where a ratio is surely beyond its aim, marked ✗: decode and prefill, and batches
within 2 % of the peer's, perplexity in at most 1.05 times its time, the same perplexity, divergence, n_ctx and planned
memory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ggbench.machine.host import describe_cpu
from scripts import peer_figures, peer_table
from scripts.peer_figures import Bench, Figure
from scripts.peer_programs import CACHE, find_or_build
from scripts.peer_slots import SLOTS
from scripts.peer_table import Round, Session
from scripts.real_models import FOLDER, MODELS

FILE = FOLDER / MODELS["smollm2"].file
FIGURES = {**peer_figures.FIGURES, "slots": SLOTS}


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    asked = _parse(words)
    if not asked.show:
        if not asked.file.exists():
            sys.exit(
                f"Error: there is no {asked.file}\nHint: ./scripts/real_models smollm2 fetches the default"
            )
        peers = find_or_build(asked.peers, asked.jobs, asked.sdist)
        cpu, at = describe_cpu(), datetime.now(UTC).isoformat(timespec="seconds")
        session = Session(at, f"{cpu.name}, {cpu.n_cores} cores", asked.file.name, peers.version)
        bench = Bench(peers, asked.file, asked.base)
        for key in asked.only:
            n_rounds = asked.rounds or (3 if asked.quick else FIGURES[key].rounds)
            for number in range(n_rounds):
                rounds = _round(FIGURES[key], bench, session, number)
                peer_table.append(asked.results, rounds)
                found = ", ".join(f"{each.row.what} {each.ratio:.3f}" for each in rounds)
                print(f"{key}, round {number + 1} of {n_rounds}: {found}", file=sys.stderr, flush=True)
    rounds = peer_table.read(asked.results)
    print(peer_table.table(rounds))
    latest = peer_table.last_sessions(rounds)
    sessions = dict.fromkeys(kept[0].session for kept in latest)
    print(
        "\n".join(dict.fromkeys(f"{each.file}; {each.machine}; llama.cpp {each.version}" for each in sessions))
    )
    return 1 if any(map(peer_table.misses_aim, latest)) else 0


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench_peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, nargs="?", default=FILE, help="a GGUF with a tokenizer (default: SmolLM2)"
    )
    parser.add_argument("--base", type=Path, help="another quant of it, for the KL divergence")
    parser.add_argument(
        "--only", type=_figures, default=list(FIGURES), metavar="NAMES", help=", ".join(FIGURES)
    )
    parser.add_argument("--rounds", type=int, help="of each figure (default: 3 to 9)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of each figure")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="built programs of llama.cpp")
    parser.add_argument(
        "--sdist", type=Path, metavar="FILE", help="llama-cpp-python's source, instead of a download"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument(
        "--results", type=Path, default=CACHE / "results.jsonl", metavar="FILE", help="added to"
    )
    parser.add_argument("--show", action="store_true", help="measure nothing, print the table")
    return parser.parse_args(words)


def _figures(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in FIGURES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(FIGURES)}")
    return names


def _round(figure: Figure, bench: Bench, session: Session, number: int) -> list[Round]:
    """Measure a figure once on both sides; the first round has ggbench first."""
    if number % 2:
        theirs, ours = figure.theirs(bench), figure.ours(bench)
    else:
        ours, theirs = figure.ours(bench), figure.theirs(bench)
    return [Round(row, session, value, theirs[row]) for row, value in ours.items()]


if __name__ == "__main__":
    sys.exit(main())
