"""Decide what to run: find the candidates of all that compete, and recommend one.

Of the catalog's current models not all are sized, as that takes a minute; the rules choose among those that are.
Of dense models and of mixtures of experts apart, those that may be comfortable are sized in the order of capability,
until one is good. Then those are of which bandwidth and others' rows expect more speed than of the best, if they are of
about its capability.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable

from msgspec.structs import replace

from ggbench.decisions.pick.candidates import Finder, PickRequest, Steps
from ggbench.decisions.pick.choose import best_of, best_way, surest
from ggbench.decisions.pick.models import Competitors, PickedModel, is_mixture, of_entry, scores
from ggbench.decisions.pick.order import FASTER, asks_nothing, check, pace
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.endings import Outcome
from ggbench.errors import DoesNotFit
from ggbench.expect.loss import cautious, expected_loss
from ggbench.gguf_file.layout import count_params
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.targets import Target
from ggbench.runs.store.database import Store
from ggbench.show.words import say
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest
from ggbench.units import KV_CELLS

_FEWER = 0.5
"""Share of the parameters of the best from which another model is of about its capability."""
_AS_GOOD = 0.9
"""Share of its score from which another is."""
_MOST_SIZED = 6
"""Models of a kind to size at most for one that is good."""
_MOST_FAST = 2
"""Models to size at most for their speed."""
_MOST_QUANTS = 3
"""Quants of a model to size at most."""
_LEAST_BITS = 4.5
"""Bits per weight of the smallest quants that lose little, about."""


def decide(
    asked: Competitors, request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, Pick]:
    """Yield the candidates of each quant as soon as they are sized; return the pick.

    A quant that cannot be planned becomes a candidate with the reason; if none can, the first error is raised. Results
    come from the store, if there is one. If the longest context is preferred, all are planned again for the one found.
    Raises DoesNotFit if no current model fits.
    """
    with Planners(allocator, PlanRequest(request.budget, request.setup, request.options)) as planners:
        finder = Finder(request, planners, store)
        found = yield from _of_current(finder, asked) if asked.entries else finder.of_models(asked.models)
        if finder.errors and all(each.row.outcome is not Outcome.COMPLETED for each in found):
            raise finder.errors[0]
        pick = recommend(
            found,
            request.needs,
            n_current=len(asked.entries),
            exactly=finder.exactly,
        )
        best, needs = pick.recommended, request.needs
        if best is None:
            return pick
        if not needs.seeks_longest or not best.max_n_ctx:
            return replace(pick, drafting=finder.drafting(best))
    n_ctx = best.max_n_ctx // needs.n_slots // KV_CELLS * KV_CELLS
    longest = replace(request, needs=replace(needs, given_n_ctx=n_ctx))
    return (yield from decide(asked, longest, allocator, store))


def _of_current(finder: Finder, asked: Competitors) -> Steps:
    """Yield the candidates of each quant as soon as they are sized; return all. Raises DoesNotFit if nothing fits."""
    agenda = _Agenda(finder, asked)
    for kind in (False, True):
        yield from agenda.until_good(each for each in agenda.entries if is_mixture(each) is kind)
    best = best_of(surest(agenda.found), finder.request.needs, finder.request.needs.prefer)
    yield from agenda.fastest() if best is None else agenda.faster_than(best[0])
    if not agenda.found:
        raise DoesNotFit(say("pick.none_fits"), say("pick.none_fits_hint"))
    return agenda.found


class _Agenda:
    def __init__(self, finder: Finder, asked: Competitors) -> None:
        self._finder, self._needs, self._local = finder, finder.request.needs, asked.local
        self._least_tok_s = max(self._needs.comfort_tok_s, self._needs.tok_s or 0.0)
        self._catalog = load_catalog()
        self._scores = scores(self._catalog)
        self._n_params = {each.id: count_params(each.hyper) for each in asked.entries}
        self._models: dict[str, list[tuple[float, PickedModel]]] = {}
        self._sized: dict[str, list[Candidate]] = {}
        self.entries = sorted(filter(self._may_fit, asked.entries), key=self._rank)
        """Those that may fit, the most capable first."""

    @property
    def found(self) -> list[Candidate]:
        """All candidates, with their checks."""
        return [candidate for own in self._sized.values() for candidate in own]

    def _may_fit(self, entry: CatalogModel) -> bool:
        """Return whether 2 bits per weight would fit, and the context is no longer than it was trained for."""
        is_small = self._n_params[entry.id] / 4 <= self._finder.most_bytes
        return is_small and not self._needs.exceeds(entry.hyper.n_ctx_train)

    def _rank(self, entry: CatalogModel) -> tuple[bool, float, int]:
        """Order by capability; a dense model that cannot be whole on the GPUs is slow beside one that is."""
        n_params = self._n_params[entry.id]
        is_over = n_params * _LEAST_BITS / 8 > self._finder.request.budget.usable_bytes
        return is_over and not is_mixture(entry), -self._scores[entry.id], -n_params

    def until_good(self, entries: Iterable[CatalogModel]) -> Generator[tuple[Candidate, ...]]:
        """Size the first models, until one is good: it meets the needs, is comfortable and loses little."""
        able = (each for each in entries if self._likely_tok_s(each) >= self._least_tok_s)
        for entry in itertools.islice(able, _MOST_SIZED):
            own = yield from self._size(entry, self._least_tok_s)
            if self._is_good(best_way(own, self._needs)):
                break

    def faster_than(self, best: Candidate) -> Generator[tuple[Candidate, ...]]:
        """Size what is of about the capability of the best, and probably faster; where that has a score, scored."""
        ahead = []
        for entry in self.entries:
            is_as_large = self._n_params[entry.id] >= _FEWER * best.n_params
            is_as_good = bool(best.score) and self._scores[entry.id] >= _AS_GOOD * best.score
            if (is_as_large or is_as_good) and (entry.score or not best.score):
                ahead.append((self._likely_tok_s(entry), entry))
        for tok_s, entry in sorted(ahead, key=lambda each: -each[0])[:_MOST_FAST]:
            if tok_s > FASTER * pace(best):
                yield from self._size(entry, self._least_tok_s)

    def fastest(self) -> Generator[tuple[Candidate, ...]]:
        """Size the fastest, though they are not comfortable."""
        for entry in sorted(self.entries, key=self._likely_tok_s)[-_MOST_FAST:]:
            yield from self._size(entry, 0.0)

    def _is_good(self, best: Candidate) -> bool:
        is_slow = best.is_split and not best.is_mixture
        return not best.missed and not is_slow and asks_nothing(best, self._needs)

    def _size(self, entry: CatalogModel, least_tok_s: float) -> Steps:
        """Yield and return the candidates of the quants that may be fast enough."""
        if not self._sized.get(entry.id):
            able = [model for tok_s, model in self._quants(entry) if tok_s >= least_tok_s]
            found = yield from self._finder.of_models(able[:_MOST_QUANTS])
            self._sized[entry.id] = [check(each, self._needs) for each in found]
        return self._sized[entry.id]

    def _likely_tok_s(self, entry: CatalogModel) -> float:
        """Return the speed of the quant that would be sized first, or the most of any if none is comfortable."""
        speeds = [tok_s for tok_s, _ in self._quants(entry)]
        return next((each for each in speeds if each >= self._least_tok_s), max(speeds, default=0.0))

    def _quants(self, entry: CatalogModel) -> list[tuple[float, PickedModel]]:
        """Return a model with each of its quants that may fit and lose little, and the likely speed: the largest that
        may be whole on the GPUs first, then the smallest of the others, until there are enough that are fast.
        """
        if entry.id not in self._models:
            model = of_entry(self._catalog, entry, self._scores[entry.id], local=self._local)
            variants = [each for each in model.variants if each.file is not None]
            little = list(filter(self._loses_little, variants)) or variants
            found = self._models[entry.id] = []
            for each in sorted(little, key=self._by_size):
                if sum(tok_s >= self._least_tok_s for tok_s, _ in found) == _MOST_QUANTS:
                    break
                if tok_s := self._finder.likely_tok_s(each):
                    found.append((tok_s, replace(model, variants=(each,))))
        return self._models[entry.id]

    def _by_size(self, variant: Target) -> int:
        n_bytes = variant.header().file_bytes
        return n_bytes if n_bytes > self._finder.request.budget.usable_bytes else -n_bytes

    def _loses_little(self, variant: Target) -> bool:
        file = variant.header()
        loss = expected_loss(variant.model, variant.quant, file.n_params, file.architecture)
        return loss is not None and not self._needs.notices(cautious(loss))
