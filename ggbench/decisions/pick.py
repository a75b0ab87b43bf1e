"""Choose what to run: candidates from what is known, the recommendation, and what would help where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.decisions.pick_candidates import PickRequest, find_candidates, what_would_help
from ggbench.decisions.pick_record import Pick
from ggbench.decisions.recommendation import recommend
from ggbench.models.picked_models import PickedModel
from ggbench.runs.store.database import Store
from ggbench.sizing.dry_allocator import DryAllocator


def choose(models: Sequence[PickedModel], request: PickRequest, allocator: DryAllocator, store: Store | None) -> Pick:
    """Return the pick by what the store knows; None for nothing. Raises as `find_candidates` does."""
    pick = recommend(find_candidates(models, request, allocator, store), request.needs)
    if pick.nearest_miss is None:
        return pick
    return replace(pick, changes=what_would_help(pick.nearest_miss.candidate, models, request, allocator))
