"""The models that the Library lists, by section: on this disk, twins, in the catalog, found on the Hub."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ggbench.catalog.disk import LocalModel, twins_by_model
from ggbench.catalog.models import HUB_REPO, Catalog
from ggbench.hub.repo_records import RepoSummary
from ggbench.plain import plain
from ggbench.tui.tables import has_words
from ggbench.units import format_count


class Section(enum.StrEnum):
    """Where a model comes from; the value is the section's heading."""

    DISK = "on this disk"
    TWINS = "twins: no download"
    CATALOG = "catalog, on the Hub"
    HUB = "found on the Hub"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line of the list."""

    section: Section
    model: str
    """MODEL as `plan` and `bench` accept it; empty for a folder that cannot be read. Untrusted text."""
    title: str
    """The name to show; printable."""
    about: str = ""
    """A short note after the title; printable."""
    quants: tuple[str, ...] = ()
    """The quants to plan; empty means all."""
    reason: str = ""
    """Why it cannot be measured, printable; empty if it can."""

    @property
    def key(self) -> str:
        """Unique among all entries."""
        return f"{self.section.name}:{self.model or self.title}"

    @property
    def needs_network(self) -> bool:
        """Whether planning it may query the Hub, so that it is planned only once chosen."""
        return self.section is Section.HUB

    @property
    def is_twin(self) -> bool:
        """Whether ggbench writes its files itself."""
        return self.section is Section.TWINS

    def matches(self, text: str) -> bool:
        """Return whether its name contains every word, in any case."""
        return has_words(f"{self.title} {self.model}", text)


def list_models(catalog: Catalog, local: Sequence[LocalModel]) -> tuple[ModelEntry, ...]:
    """List every model that can be found without a search of the Hub."""
    twins = twins_by_model(local)
    entries = list(_on_disk(local))
    for model in catalog:
        n_here = len(twins.get(model.id, ()))
        about = f"{n_here} made" if n_here else ""
        entries.append(ModelEntry(Section.TWINS, f"synth:{model.id}", f"synth:{model.id}", about))
    entries += [ModelEntry(Section.CATALOG, model.id, model.id, quants=model.quants) for model in catalog if model.repo]
    return tuple(entries)


def found_models(found: Iterable[RepoSummary]) -> tuple[ModelEntry, ...]:
    """List the results of a search of the Hub."""
    return tuple(
        ModelEntry(Section.HUB, repo.repo, plain(repo.repo), "gated" if repo.gated else _downloads(repo.downloads))
        for repo in found
    )


def named_repo(text: str) -> ModelEntry | None:
    """Return the repo that the text names in full, `org/name`; None for any other text."""
    name = text.strip().removeprefix("hf:")
    return ModelEntry(Section.HUB, name, name, "open this repo") if HUB_REPO.fullmatch(name) else None


def _on_disk(local: Sequence[LocalModel]) -> Iterable[ModelEntry]:
    """Yield one entry for each model, with all its quants where one name covers them."""
    groups: dict[str, list[LocalModel]] = {}
    for model in local:
        if not model.model.startswith("synth:"):
            groups.setdefault(model.model or model.name, []).append(model)
    for group in groups.values():
        first = group[0]
        by_path = first.is_named_by_path
        about = first.quant or "" if by_path else f"{len(group)} quants" if len(group) > 1 else group[0].quant or ""
        yield ModelEntry(
            Section.DISK,
            first.model,
            first.name,
            plain(about),
            () if by_path else tuple(model.quant for model in group if model.quant),
            first.reason if len(group) == 1 else "",
        )


def _downloads(count: int | None) -> str:
    return "" if count is None else f"{format_count(count)} a month"
