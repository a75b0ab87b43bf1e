"""The state of the Library screen: the needs, the quants of a model with the pick first, and the selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from ggbench.decisions.pick.needs import Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.show import FITS_NOT
from ggbench.text import sanitize
from ggbench.tui.model_list import ModelEntry
from ggbench.units import counted, format_count

if TYPE_CHECKING:
    from ggbench.decisions.pick.candidates import PickRequest
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.quant_rows import QuantRow


PICKED = "★"
Selection: TypeAlias = tuple[str, tuple[str, ...]]
"""MODEL, and the QUANT arguments to use."""


def quants_on_disk(local: Iterable[LocalModel], catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Return (model, quant) of every measurable file on this disk, under every name of the model in the Library."""
    ids = {model.repo.lower(): model.id for model in catalog if model.repo}
    here = set()
    for model in local:
        if model.quant is not None and model.paths and not model.reason:
            here.add((model.model, model.quant))
            if (model_id := ids.get(model.model.lower())) is not None:
                here.add((model_id, model.quant))
    return frozenset(here)


def pick_in_brief(pick: Pick | None) -> str:
    """Return the pick and its reason in a sentence; empty until it is made."""
    from ggbench.decisions.pick.sentences import headline

    return "" if pick is None else headline(pick)


class Library:
    """The needs, the chosen model with its quants, and the marks of all models."""

    def __init__(self) -> None:
        self.entry: ModelEntry | None = None
        self.rows: dict[str, QuantRow] = {}
        """Quants of the chosen model, by name, that of the pick first."""
        self.pick: Pick | None = None
        """None until all quants are planned."""
        self.needs = Needs()
        self.options = LlamaConfig()
        self.marks: set[str] = set()
        """Names of the marked quants of the model."""
        self._on_disk: Collection[tuple[str, str]] = frozenset()

    @property
    def all_needs(self) -> Needs:
        """The needs, with the context of the options if they name none, and turns that fit it."""
        return replace(self.needs, given_n_ctx=self.needs.given_n_ctx or self.options.n_ctx)

    @property
    def best(self) -> QuantRow | None:
        """The quant to run, or what comes nearest."""
        best = None if self.pick is None else self.pick.best
        return next((row for row in self.rows.values() if best and row.candidate.name == best.name), None)

    @property
    def picked(self) -> QuantRow | None:
        """The quant to run; None if none meets the needs."""
        return self.best if self.pick is not None and self.pick.recommended is not None else None

    def request(self, budget: Budget) -> PickRequest:
        """Return what to pick for: any KV cache, unless the options name one."""
        from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of

        options, default = self.options, LlamaConfig()
        given = options.type_k, options.type_v
        types = [(each, each) for each in CACHE_TYPES] if given == (default.type_k, default.type_v) else [given]
        return PickRequest(self.all_needs, budget, options, caches_of(types, options))

    def choose(self, entry: ModelEntry | None, *, is_planning: bool) -> bool:
        """Choose a model; return False if its same quants are planned or being planned, even in another section."""
        before, self.entry = self.entry, entry
        same = [(each.model, each.quants) for each in (before, entry) if each is not None]
        if len(same) > 1 and same[0] == same[1] and (self.rows or is_planning):
            return False
        self.forget()
        self.marks = set()
        return True

    def forget(self) -> None:
        """Drop the quants, whose figures no longer hold."""
        self.rows, self.pick = {}, None

    def add(self, best: Candidate) -> None:
        """Add a quant, or replace it in its place."""
        row = self.row_of(best)
        self.rows[row.name] = row

    def take(self, pick: Pick) -> None:
        """Show what is picked first."""
        self.pick = pick
        if pick.best is not None:
            best = self.row_of(pick.best)
            self.rows = {best.name: best} | {name: row for name, row in self.rows.items() if name != best.name}

    def update(self, on_disk: Collection[tuple[str, str]]) -> bool:
        """Update the quants on this disk; return whether one of them was planned as a file to download."""
        self._on_disk, before = on_disk, self.rows
        self.rows = {name: replace(row, is_here=self._is_here(row.candidate)) for name, row in before.items()}
        arrived = (
            row.candidate.to_run for name, row in self.rows.items() if row.is_here and not before[name].is_here
        )
        return any(file is not None and not file.is_here for file in arrived)

    def selection(self, cursor: QuantRow | None) -> Selection | None:
        """Return the marked quants, or the one at the cursor if none is marked; None without any."""
        names = tuple(sorted(self.marks)) or (() if cursor is None else (cursor.name,))
        return None if self.entry is None or not names else (self.entry.model, names)

    def planned_setup(self, names: Sequence[str]) -> LlamaConfig:
        """Return the setup in which quants are measured: one as it is shown, several with the options."""
        row = self.rows.get(names[0])
        if len(names) > 1 or row is None or row.plan.setup is None:
            return self.options
        return replace(row.candidate.setup, n_ctx=self.options.n_ctx)

    def listed(self) -> list[QuantRow]:
        """Return the quants to show, with labels if several share a quant."""
        times = Counter(row.plan.quant for row in self.rows.values())
        return [
            replace(row, label=sanitize(row.name)) if times[row.plan.quant] > 1 else row
            for row in self.rows.values()
        ]

    def status(self, *, is_planning: bool) -> str:
        """Return one line: the model, the state of its plan, and how many quants are marked."""
        entry, n_marked = self.entry, len(self.marks)
        if entry is None:
            return "quants"
        if entry.reason:
            return f"{FITS_NOT} {entry.title}: {entry.reason}"
        state = counted(len(self.rows), "quant") if self.rows else ""
        if is_planning:
            state = "planning…"
        elif entry.needs_network and not self.rows:
            state = "enter: its quants"
        marked = f"{format_count(n_marked)} marked" if n_marked else ""
        return " · ".join(filter(None, (entry.title, state, marked)))

    def row_of(self, candidate: Candidate) -> QuantRow:
        from ggbench.tui.quant_rows import QuantRow

        file, is_here = candidate.to_run, self._is_here(candidate)
        is_asked_for = self.entry is not None and self.entry.model.startswith("twin:")
        is_twin = not is_here and (is_asked_for or (file is not None and not file.repo))
        speed = candidate.speed
        is_slow = speed is not None and speed.tok_s.high < self.needs.comfort_tok_s
        return QuantRow(candidate, is_here, is_twin, is_slow)

    def _is_here(self, candidate: Candidate) -> bool:
        name, file = candidate.quant, candidate.to_run
        is_listed = self.entry is not None and (self.entry.model, name) in self._on_disk
        return is_listed or (file is not None and file.is_here)
