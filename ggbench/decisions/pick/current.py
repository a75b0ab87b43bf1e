"""Choose which model to run: of the current ones in the catalog, the most capable that is comfortable.

Beside it stand the best of the other kind, the fastest, and the one with room for a long context. Most capable is, of
dense models and of mixtures of experts apart, the one with the highest score that its publisher reports, or without
scores the most parameters. Sizing all quants of all models takes a minute, so theory goes first: what cannot fit or
cannot be comfortable is not sized, the others in the order in which they would be chosen, until one is good enough.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.candidates import Finder, PickRequest
from ggbench.decisions.pick.contenders import Contender, MemoryBounds, may_fit
from ggbench.decisions.pick.models import Competitors, PickedModel, of_entry
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import FASTER, MORE_CONTEXT, concessions, is_slower, pace
from ggbench.decisions.pick.reasons import reminded
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Checked, Listed, Pick, PublishedScore
from ggbench.errors import DoesNotFit
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.disk import LocalModel
from ggbench.runs.store.database import Store
from ggbench.show.words import say
from ggbench.sizing.budget import with_main_memory
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import Planners, PlanRequest
from ggbench.sizing.plan_record import PlanRow

_FEWER = 0.5
"""Share of the parameters of the most capable, or of the model asked for, below which another is no substitute."""
_AS_GOOD = 0.9
"""Share of a score from which another is about as good."""
_LONG_N_CTX = 65536
"""Tokens of context that are long: what coding tools ask of a local model at least (ollama.com/blog/claude)."""
_MOST_SIZED = 6
"""Models of a kind to size at most for one that is good enough."""
_MOST_TRIED = 2
"""Models to size at most for the fastest, and for the longest context; theory names the first of them."""
Steps: TypeAlias = Generator[tuple[Candidate, ...], None, list["Entrant"]]
"""Yields the candidates of each quant that was sized, and returns models."""


class Entrant(msgspec.Struct, frozen=True):
    """A model that was sized, with the pick among its own quants."""

    contender: Contender
    model: PickedModel
    candidates: tuple[Candidate, ...]
    pick: Pick

    @classmethod
    def of(
        cls, contender: Contender, model: PickedModel, candidates: Sequence[Candidate], needs: Needs
    ) -> Entrant:
        return cls(contender, model, tuple(candidates), recommend(candidates, needs))

    @property
    def best(self) -> Checked | None:
        return self.pick.recommended

    @property
    def is_whole(self) -> bool:
        return self.best is not None and not self.best.candidate.is_split

    @property
    def is_good(self) -> bool:
        """Whether it meets the needs, is comfortable as far as is known, and loses little."""
        if self.best is None or self.best.meets is False:
            return False
        return not any(concessions(self.best.candidate, self.pick.needs)[:2])

    def is_faster(self, other: Entrant) -> bool:
        """Return whether it is good and clearly faster than another."""
        if not self.is_good or self.best is None or other.best is None:
            return False
        return is_slower(other.best.candidate, self.best.candidate, FASTER)

    def has(self, best: Checked | None) -> bool:
        """Return whether a candidate is of this model."""
        return best is not None and best.candidate.model_key == self.model.key

    @property
    def pace(self) -> float:
        return 0.0 if self.best is None else pace(self.best.candidate)

    @property
    def n_ctx(self) -> int:
        return 0 if self.best is None else self.best.candidate.longest_n_ctx or 0


class Role(NamedTuple):
    label: str
    entrant: Entrant


def decide_current(
    asked: Competitors,
    local: Sequence[LocalModel],
    request: PickRequest,
    allocator: DryAllocator,
    store: Store | None,
) -> Generator[tuple[Candidate, ...], None, tuple[Pick, tuple[PickedModel, ...]]]:
    """Yield the candidates of each quant as soon as they are sized; return the pick, and the models that were sized.

    Files on this disk take the place of those to download. Raises DoesNotFit if no model can.
    """
    request = replace(request, budget=with_main_memory(request.budget))
    with Planners(allocator, PlanRequest(request.budget, request.setup, request.options)) as planners:
        contest = _Contest(request, planners, store, local)
        shapes = _shapes(asked.entries, request)
        able = [each for each in shapes if each.can_serve]
        pick = yield from contest.decide(
            able or sorted(shapes, key=lambda each: -each.most_tok_s)[:_MOST_TRIED]
        )
        pick = reminded(replace(pick, n_current=len(asked.entries)), is_here=request.budget.is_here)
        return pick, contest.models


def substitute(
    asked: PlanRow, request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, str]:
    """Yield like `decide_current`; return the id of a current model that is good where the one asked for is not.

    It is the most capable that is good here, of those with at least half the parameters and the one that supersedes it.
    Empty if there is none.
    """
    request = replace(request, budget=with_main_memory(request.budget))
    catalog = load_catalog()
    known = catalog.named(asked.model)
    newer = {each.id for each in catalog.successors(known)} if known else set[str]()
    shapes = _shapes([each for each in catalog.current if each != known], request)
    peers = [
        each for each in shapes if each.n_params >= _FEWER * (asked.n_params or 0) or each.entry.id in newer
    ]
    with Planners(allocator, PlanRequest(request.budget, request.setup, request.options)) as planners:
        contest = _Contest(request, planners, store, ())
        found = yield from contest.most_capable([each for each in peers if each.can_serve])
        return found[0].contender.entry.id if found else ""


def _shapes(entries: Sequence[CatalogModel], request: PickRequest) -> list[Contender]:
    """Return the models that may fit, as far as theory knows them."""
    most_bytes = MemoryBounds.of(request.budget).all_bytes
    return [
        Contender(each, request.needs, request.budget, request.setup)
        for each in entries
        if may_fit(each, most_bytes)
    ]


def _peers(chosen: Contender, able: Iterable[Contender]) -> list[Contender]:
    """Return the models that may be named beside the chosen one: of at least half its parameters, or nine tenths of its
    score; where it has one they have one.
    """
    score = chosen.entry.score
    if score is None:
        return [each for each in able if each.n_params >= _FEWER * chosen.n_params]
    scored = [each for each in able if each.entry.score is not None]
    return [
        each for each in scored if each.n_params >= _FEWER * chosen.n_params or each.score >= _AS_GOOD * score
    ]


class _Contest:
    def __init__(
        self, request: PickRequest, planners: Planners, store: Store | None, local: Sequence[LocalModel]
    ) -> None:
        self._request, self._local = request, local
        plain = tuple(each for each in request.caches if each.type_k == request.caches[0].type_k)
        self._plain = Finder(replace(request, caches=plain), planners, store)
        self._every = Finder(request, planners, store)
        self._sized: dict[str, Entrant] = {}

    @property
    def models(self) -> tuple[PickedModel, ...]:
        return tuple(each.model for each in self._sized.values())

    def decide(self, able: Sequence[Contender]) -> Generator[tuple[Candidate, ...], None, Pick]:
        """Return the pick among models that theory allows. Raises DoesNotFit for none."""
        if not able:
            raise DoesNotFit(say("pick.none_fits"), say("pick.none_fits_hint"))
        firsts = yield from self._firsts(able)
        if not firsts:
            return self._exactly(self._among(self._sized.values()))
        best = self._among(firsts).recommended
        chosen = next((each for each in firsts if each.has(best)), firsts[0])
        peers = _peers(chosen.contender, able)
        roles = [Role("mixture" if each.contender.is_mixture else "dense", each) for each in firsts]
        roles += [Role("fastest", each) for each in (yield from self._fastest(peers, chosen))]
        roles += [Role("long context", each) for each in (yield from self._longest(peers, chosen, roles))]
        is_by_capability = self._request.needs.prefer in ("balanced", "quality")
        return self._exactly(
            self._of_roles(roles, firsts if is_by_capability else [each.entrant for each in roles])
        )

    def _firsts(self, able: Sequence[Contender]) -> Steps:
        """Return the most capable dense model and the most capable mixture.

        A dense model that cannot be whole on the GPUs is slow beside one that is.
        """
        dense = [each for each in able if not each.is_mixture]
        whole = [each for each in dense if each.can_be_whole]
        found = yield from self.most_capable(whole or dense)
        return found + (yield from self.most_capable([each for each in able if each.is_mixture]))

    def most_capable(self, able: Iterable[Contender]) -> Steps:
        """Return the most capable that is good; none if the first of them are not."""
        ranked = sorted(able, key=lambda each: each.rank)
        return (yield from self._first(ranked, lambda each: each.is_good, _MOST_SIZED))

    def _of_roles(self, roles: Sequence[Role], firsts: Sequence[Entrant]) -> Pick:
        """Return the pick among the first models, with those of other roles as its alternatives, each once."""
        pick, every = self._among(firsts), self._among(self._sized.values())
        rows, entries = dict[str, Listed](), dict[str, CatalogModel]()
        for label, each in roles:
            entries[each.model.key] = each.contender.entry
            if each.best is not None and not each.has(pick.recommended):
                rows.setdefault(each.model.key, Listed(label, each.best))
        scores = [
            PublishedScore(each.id, each.score, each.score_source)
            for each in entries.values()
            if each.score is not None
        ]
        return replace(
            pick,
            checked=every.checked,
            front=every.front,
            alternatives=tuple(rows.values()),
            scores=tuple(scores),
        )

    def _among(self, entrants: Iterable[Entrant]) -> Pick:
        candidates = [candidate for each in entrants for candidate in each.candidates]
        return recommend(candidates, self._request.needs)

    def _exactly(self, pick: Pick) -> Pick:
        return self._every.exactly(pick, self.models)

    def _fastest(self, peers: Sequence[Contender], chosen: Entrant) -> Steps:
        """Return the fastest of the peers, if it is clearly faster than the chosen one."""
        by_speed = sorted(peers, key=lambda each: -each.likely_tok_s)
        ahead = [each for each in by_speed if each.likely_tok_s > chosen.pace]
        yield from self._first(ahead, lambda _: False, _MOST_TRIED)
        known = {each.entry.id for each in peers}
        faster = (each for key, each in self._sized.items() if key in known and each.is_faster(chosen))
        return sorted(faster, key=lambda each: -each.pace)[:1]

    def _longest(self, peers: Sequence[Contender], chosen: Entrant, roles: Sequence[Role]) -> Steps:
        """Return a peer that holds a clearly longer context, unless the chosen one or another does so already."""
        wanted = MORE_CONTEXT * chosen.n_ctx
        if chosen.n_ctx >= _LONG_N_CTX or any(each.entrant.n_ctx > wanted for each in roles):
            return []
        by_room = sorted(
            (each for each in peers if each.room > wanted), key=lambda each: (-each.room, each.rank)
        )
        return (yield from self._first(by_room, lambda each: each.is_good and each.n_ctx > wanted, _MOST_TRIED))

    def _first(self, ordered: Sequence[Contender], accepts: Callable[[Entrant], bool], most: int) -> Steps:
        """Size at most `most` models, and return the first that is accepted; empty if none is."""
        for contender in ordered[:most]:
            entrant = self._sized.get(contender.entry.id)
            if entrant is None:
                entrant = yield from self._size(contender)
                self._sized[contender.entry.id] = entrant
            if accepts(entrant):
                return [entrant]
        return []

    def _size(self, contender: Contender) -> Generator[tuple[Candidate, ...], None, Entrant]:
        """Size a model with an unquantized cache; with the others too if that is not good, or if a smaller cache may
        keep on the GPUs what it does not.
        """
        model = of_entry(contender.entry, contender.choice, self._local)
        plain = Entrant.of(contender, model, (yield from self._plain.of_model(model)), self._request.needs)
        if not self._request.budget.on_gpu or (
            plain.is_good and (plain.is_whole or not contender.can_be_whole)
        ):
            return plain
        return Entrant.of(contender, model, (yield from self._every.of_model(model)), self._request.needs)
