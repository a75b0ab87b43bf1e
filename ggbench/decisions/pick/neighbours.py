"""Estimate speeds from known neighbours: the same setting with another quant, or another setting of the quant.

A setting that nobody tried must not look better than those that were tried: its bound is far above what they reach.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.decisions.pick.order import bound_with_f16_cache
from ggbench.decisions.pick.record import Candidate, TurnSpeed
from ggbench.stats.intervals import Expected

_OTHER_QUANT, _OTHER_SETTING = 1.5, 3.0
"""How many times faster or slower than its neighbours one may be.

On a Xeon at a depth of 4,096 SmolLM2 135M takes 77.6 ms a token with an f16 cache, 37.8 with q8_0, and 27.4 with f16
and without flash attention: up to 2.8 times. Its quants differ by less than 1.3 times from what their bytes say.
"""


_OWN = ("measured", "forecast", "other runs")
"""Sources from this machine's runs."""


def with_neighbours(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return one model's candidates, with an estimate instead of a bound for those with neighbours that ran here."""
    known = [each for each in candidates if each.speed is not None and each.speed.basis in _OWN]
    return [_estimated(each, known) if each.speed is not None and each.speed.is_bound else each for each in candidates]


def _estimated(candidate: Candidate, known: Sequence[Candidate]) -> Candidate:
    alike = [each for each in known if _setting(each) == _setting(candidate)]
    same = [each for each in known if each.row.quant == candidate.row.quant and each.selector == candidate.selector]
    for neighbours, factor in ((alike, _OTHER_QUANT), (same, _OTHER_SETTING)):
        shares = [share for each in neighbours if (share := _share(each)) is not None]
        bound = _bound(candidate)
        if shares and bound is not None:
            share = min(1.0, statistics.median(shares))
            value, most = share * bound, 0.0 if candidate.speed is None else candidate.speed.tok_s.high
            tok_s = Expected(value, value / factor, max(value, min(most, value * factor)))
            what = "quants with these settings" if neighbours is alike else "settings of this quant"
            source = f"other {what} reach {100 * share:.2g} % of the bound"
            return replace(candidate, speed=TurnSpeed(tok_s, None, "other runs", source))
    return candidate


def _setting(candidate: Candidate) -> tuple[object, ...]:
    return candidate.cache, candidate.options


def _share(candidate: Candidate) -> float | None:
    bound = _bound(candidate)
    return None if bound is None or candidate.speed is None else candidate.speed.tok_s.value / bound


def _bound(candidate: Candidate) -> float | None:
    """Return the tokens/s that the bandwidth allows with a full context and an f16 cache; None if unknown."""
    at = candidate.row.at_n_ctx
    return None if at is None else bound_with_f16_cache(candidate, at.tok_s)
