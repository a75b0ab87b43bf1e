"""What to measure next for a pick: the speed of what would be recommended, where it is not known of this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastSettings
from ggbench.hub.access import HubAccess
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.experiment import Job
from ggbench.sizing.plan import with_cache
from ggbench.sizing.plan_record import KvCacheTypes

Name = tuple[str, str, str, str]
_KNOWN = ("measured", "forecast")


def next_to_measure(pick: Pick, tried: Collection[Name]) -> Candidate | None:
    """Return the first that matters and whose speed is only estimated, bounded or unknown; None where none is left.

    The recommendation and its alternatives matter; where nothing is recommended, the nearest miss does if it misses a
    speed by an estimate, which a measurement may correct and a bound not.
    """
    return next((each for each in _that_matter(pick) if each.name not in tried and not _is_known(each)), None)


def forecast_job(candidate: Candidate, setup: LlamaConfig, hub: HubAccess) -> Job:
    """Return the forecast of a candidate's speed with its cache. Raises as `resolve`."""
    ref = parse_model(candidate.row.model, candidate.selector or candidate.row.quant)
    (target,) = resolve(ref.require_gguf().as_twin(), hub=hub)
    cached = with_cache(setup, KvCacheTypes(*candidate.cache, setup.flash_attn))
    return Job(EXPERIMENT, target, cached, ForecastSettings())


def _that_matter(pick: Pick) -> Iterator[Candidate]:
    if pick.recommended is not None:
        yield pick.recommended.candidate
        yield from (each.checked.candidate for each in pick.alternatives)
    elif pick.nearest_miss is not None and {check.need for check in pick.nearest_miss.missed} == {"speed"}:
        candidate = pick.nearest_miss.candidate
        if candidate.speed is not None and not candidate.speed.is_bound:
            yield candidate


def _is_known(candidate: Candidate) -> bool:
    return candidate.speed is not None and candidate.speed.basis in _KNOWN
