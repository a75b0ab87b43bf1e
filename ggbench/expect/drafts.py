"""The share of drafted tokens that a model accepts, before it is measured: what others published, by kind of draft."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable

import msgspec

from ggbench.models.published import data_text, reads_data
from ggbench.models.published.selection import size_octaves
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import acceptance_of

_FEWEST = 5
"""Rows that a narrower choice must leave."""
_NEAR_OCTAVES = 1.0
"""Models from half to twice the size are near."""


class AcceptanceRow(msgspec.Struct, frozen=True):
    """A published acceptance of drafts; None or empty means not stated."""

    kind: str
    """`draft` (a smaller model), `mtp`, `eagle` (EAGLE, EAGLE-2 and EAGLE-3), `dflash`, `medusa` or `ngram`."""
    target: str
    source: str
    """Address."""
    size: str = ""
    """Printed size of the target: `27B`, `30B-A3B`."""
    draft: str = ""
    task: str = ""
    n_draft: int | None = None
    """Drafted tokens of a step, at most."""
    mean_len: float | None = None
    """Tokens of a step, one of the target's own included."""
    share: float | None = None
    """Accepted of all drafted tokens, those after the first rejected one included."""
    temperature: float | None = None
    device: str = ""
    date: str = ""
    printed: str = ""
    remark: str = ""

    @property
    def acceptance(self) -> float | None:
        """The acceptance of a token after those before it that gives such steps; None if their most is unknown."""
        if self.n_draft is None:
            return None
        drafted = None if self.share is None else 1 + self.n_draft * self.share
        length = self.mean_len or drafted
        return None if length is None else acceptance_of(length, self.n_draft)


@reads_data
def load_acceptances() -> tuple[AcceptanceRow, ...]:
    lines = csv.DictReader(data_text("acceptance.csv", "ggbench.expect").splitlines())
    stated = [{column: cell for column, cell in line.items() if cell} for line in lines]
    return tuple(msgspec.convert(stated, list[AcceptanceRow], strict=False))


_KINDS = {"draft-simple": "draft", "draft-mtp": "mtp", "draft-eagle3": "eagle", "draft-dflash": "dflash"}
"""Kinds of the table by llama-server's --spec-type; those that begin with `ngram` are one."""


def kind_of(spec_type: str) -> str:
    """Return the kind of drafts of a --spec-type; of none, a draft model's."""
    return "ngram" if spec_type.startswith("ngram") else _KINDS.get(spec_type, "draft")


def expected_acceptance(kind: str, n_params: int | None = None, task: str = "") -> Estimate:
    """Return the acceptance of a drafted token after those before it: the median of published rows, and their range.

    The rows are those of the kind, then of the task, then of targets of half to twice the size, as far as five are
    left; of a kind with fewer they are those of all kinds.
    """
    found = [row for row in load_acceptances() if row.acceptance is not None]
    for is_alike in (
        lambda row: row.kind == kind,
        lambda row: row.task.startswith(task),
        lambda row: size_octaves(row.size, n_params) <= _NEAR_OCTAVES,
    ):
        narrower = [row for row in found if is_alike(row)]
        found = narrower if len(narrower) >= _FEWEST else found
    return acceptance_of_rows(found)


def acceptance_of_rows(rows: Iterable[AcceptanceRow]) -> Estimate:
    """Return the median of rows that tell an acceptance, and their range."""
    shares = [row.acceptance for row in rows if row.acceptance is not None]
    return Estimate(statistics.median(shares), min(shares), max(shares))
