"""The trials behind scripts/hardening; exit code 1 where anything was counted that should be 0."""

from __future__ import annotations

import argparse
import signal
import sys
from datetime import date
from pathlib import Path

from tests.hardening.table import ROWS, SLOW, markdown, run_rows


def main() -> int:
    """Run the rows, print each as it ends, its faults, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a few trials of each row, in less than 20 seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=Path, nargs="*", default=(), metavar="FILE", help="damage these headers too")
    asked = parser.parse_args()
    # What a shell or `nohup` makes programs in the background ignore, ggbench ignores too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    chosen = asked.rows or [name for name in ROWS if not asked.quick or name not in SLOW]
    rows = []
    for row, seconds in run_rows(chosen, is_quick=asked.quick, seed=asked.seed, real=asked.real):
        rows.append(row)
        print(f"{row.name}: {row.tried:,} in {seconds:.0f} s, {'clean' if row.is_clean else 'FAULTS'}", flush=True)
        for fault in row.faults:
            print(f"  {fault}", flush=True)
    print(f"\n{date.today()}\n\n{markdown(rows)}")
    return 0 if all(row.is_clean for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
