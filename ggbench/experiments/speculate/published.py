"""The speed-up that a measured pair would have at the lengths that others published for drafts of its kind and others.

Their drafts cost other times than this one: a head costs less than a draft model, and n-grams cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ggbench.experiments.speculate.record import SpeculateResult, SpeculationCase
from ggbench.models.published.acceptance import Acceptance, load_acceptance
from ggbench.stats.intervals import Expected

_METHODS = ("draft", "mtp", "eagle3", "dflash", "ngram")
"""Methods that llama.cpp has; others draft trees of tokens."""


class PublishedGain(msgspec.Struct, frozen=True):
    """One published length, and the speed-up of this pair with steps of that length."""

    figure: Acceptance
    k: int
    """Drafted tokens of the step whose cost was taken."""
    speedup: Expected


def published_gains(found: SpeculateResult) -> tuple[PublishedGain, ...]:
    """Return the gains at the least depth, in the order of `_METHODS`; none of lengths beyond the measured k."""
    cases = found.at(found.depths[0]) if found.depths else ()
    rows = [row for method in _METHODS for row in load_acceptance() if row.method == method]
    able = ((row, [case for case in cases if case.k + 1 >= row.mean_len]) for row in rows)
    return tuple(_gain(row, reaching) for row, reaching in able if reaching)


def _gain(row: Acceptance, cases: Sequence[SpeculationCase]) -> PublishedGain:
    """Return the gain with the k nearest to the published one; with the fastest if it is not stated."""
    if row.n_draft is None:
        case = max(cases, key=lambda each: each.step.speedup(row.mean_len).value)
    else:
        case = min(cases, key=lambda each: abs(each.k - (row.n_draft or 0)))
    return PublishedGain(row, case.k, case.step.speedup(row.mean_len))
