"""The trials behind scripts/hardening; exit code 1 where anything was counted that should be 0."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from tests.hardening.table import LONGEST, ROWS, SLOW, TIMED, made_rows, markdown, run_rows
from tests.hardening.trials import Trials


def main() -> int:
    """Run the rows, print each as it ends, its faults, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these of {', '.join(ROWS)}")
    parser.add_argument(
        "--quick", action="store_true", help="a few trials of each row, in less than 20 seconds"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--real", type=Path, nargs="*", default=(), metavar="FILE", help="damage these headers too"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of two front ends at once")
    asked = parser.parse_args()
    # What a shell or `nohup` makes programs in the background ignore, ggbench ignores too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    chosen = asked.rows or [name for name in ROWS if not asked.quick or name not in SLOW]
    rows = []
    for row, seconds in _made(
        chosen, is_quick=asked.quick, seed=asked.seed, real=asked.real, minutes=asked.minutes
    ):
        rows.append(row)
        print(
            f"{row.name}: {row.tried:,} in {seconds:.0f} s, {'clean' if row.is_clean else 'FAULTS'}", flush=True
        )
        for line in (*row.faults, *row.said):
            print(f"  {line}", flush=True)
    print(f"\n{date.today()}\n\n{markdown(rows)}")
    return 0 if all(row.is_clean for row in rows) else 1


def _made(chosen: Sequence[str], **options: Any) -> Iterator[tuple[Trials, float]]:  # noqa: ANN401 - those of run_rows
    """Yield the rows. The longest runs in a process beside those that time nothing, which leave it half the machine.

    The one that is timed starts its commands from a small process: Linux counts the memory of a program's parent, until
    it is replaced, in the program's peak.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        longest = pool.submit(made_rows, [name for name in chosen if name == LONGEST], **options)
        yield from run_rows([name for name in chosen if name not in (LONGEST, TIMED)], **options)
        yield from longest.result()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield from pool.submit(made_rows, [name for name in chosen if name == TIMED], **options).result()


if __name__ == "__main__":
    sys.exit(main())
