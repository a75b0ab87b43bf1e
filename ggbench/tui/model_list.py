"""The models that the Library lists, by section: added by hand, on this disk, twins, in the catalog, on the Hub.

The quants of a model that lie in one folder are one model, whichever program put them there.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.repo_records import RepoSummary
from ggbench.models.added_places import typed_path
from ggbench.models.catalog import HUB_REPO, Catalog
from ggbench.models.disk import LocalModel, path_argument, twins_by_model
from ggbench.text import sanitize
from ggbench.tui.tables import has_words
from ggbench.units import format_count


class Section(enum.StrEnum):
    """Where a model comes from; the value is the section's heading."""

    ADDED = "added by hand"
    SERVERS = "servers"
    DISK = "on this disk"
    TWINS = "twins: no download"
    CATALOG = "catalog, on the Hub"
    HUB = "found on the Hub"


class ModelEntry(msgspec.Struct, frozen=True):
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
    files: tuple[Path, ...] = ()
    """Those on this disk, shards included; empty for a repo of the Hub and for twins."""
    place: Path | None = None
    """The folder or file that the user added, which has it."""

    @property
    def server(self) -> str | None:
        """The base URL of a server that the user added; None of anything else."""
        return self.model if self.section is Section.SERVERS else None

    @property
    def key(self) -> str:
        """Unique among all entries."""
        return f"{self.section.name}:{self.place or ''}:{self.title}:{self.model}"

    @property
    def heading(self) -> str:
        """The line above it and its neighbours: the place that the user added, else the section."""
        return self.section.value if self.place is None else sanitize(path_argument(self.place))

    @property
    def needs_network(self) -> bool:
        """Whether listing its quants asks the Hub or a server, so that they are listed only once it is chosen."""
        return self.section in (Section.HUB, Section.SERVERS)

    @property
    def is_twin(self) -> bool:
        """Whether ggbench writes its files itself."""
        return self.section is Section.TWINS

    def matches(self, text: str) -> bool:
        """Return whether its name contains every word, in any case."""
        return has_words(f"{self.title} {self.model}", text)


def list_models(catalog: Catalog, local: Sequence[LocalModel], servers: Sequence[str] = ()) -> tuple[ModelEntry, ...]:
    """List every model that can be found without a search of the Hub, and the servers that were added."""
    twins = twins_by_model(local)
    entries = [ModelEntry(Section.SERVERS, url, sanitize(url).removeprefix("http://")) for url in servers]
    entries += _on_disk(local)
    for model in catalog:
        n_here = len(twins.get(model.id, ()))
        about = f"{n_here} made" if n_here else ""
        entries.append(ModelEntry(Section.TWINS, f"twin:{model.id}", f"twin:{model.id}", about))
    entries += [ModelEntry(Section.CATALOG, model.id, model.id, quants=model.quants) for model in catalog if model.repo]
    return tuple(entries)


def found_models(found: Iterable[RepoSummary]) -> tuple[ModelEntry, ...]:
    """List the results of a search of the Hub."""
    return tuple(
        ModelEntry(Section.HUB, repo.repo, sanitize(repo.repo), "gated" if repo.gated else _downloads(repo.downloads))
        for repo in found
    )


def named_repo(text: str) -> ModelEntry | None:
    """Return the repo that the text names in full, `org/name`; None for any other text and for a path."""
    if typed_path(text) is not None:
        return None
    name = text.strip().removeprefix("hf:")
    return ModelEntry(Section.HUB, name, name, "open this repo") if HUB_REPO.fullmatch(name) else None


def _on_disk(local: Sequence[LocalModel]) -> Iterable[ModelEntry]:
    """Return one entry for each model, those added by hand first."""
    added = {path for model in local if model.place is not None for path in model.paths}
    groups: dict[Hashable, list[LocalModel]] = {}
    for model in local:
        is_listed_above = model.place is None and model.is_named_by_path and added.issuperset(model.paths)
        if not model.model.startswith("twin:") and not is_listed_above:
            groups.setdefault((model.place, *_group(model)), []).append(model)
    by_place = sorted(groups.values(), key=lambda group: group[0].place is None)
    return _distinct([_entry(sorted(group, key=lambda model: -(model.file_bytes or 0))) for group in by_place])


def _distinct(entries: Sequence[ModelEntry]) -> Iterable[ModelEntry]:
    """Return the entries, those of one name in one section with the nearest folder in front that differs in all."""
    same: dict[tuple[str, str], list[ModelEntry]] = {}
    for entry in entries:
        same.setdefault((entry.heading, entry.title), []).append(entry)
    titles: dict[str, str] = {}
    for group in same.values():
        above = zip_longest(*(reversed(entry.files[0].parent.parts) if entry.files else () for entry in group))
        folders = next((names for names in above if len(set(names)) == len(names)), ()) if len(group) > 1 else ()
        titles |= {
            entry.key: f"{sanitize(folder)}/{entry.title}"
            for entry, folder in zip(group, folders, strict=False)
            if folder
        }
    return [replace(entry, title=titles.get(entry.key, entry.title)) for entry in entries]


def _group(model: LocalModel) -> tuple[Hashable, ...]:
    """Return what the quants of one model have in common: the repo, or the folder and the name but for the quant."""
    if not model.is_named_by_path:
        return (model.model or model.name,)
    return model.paths[0].parent, name_without_quant(model.paths[0].name).lower()


def _entry(group: Sequence[LocalModel]) -> ModelEntry:
    """Return the entry for the quants of one model: of a folder by their files' names, alone by the file's path."""
    first = group[0]
    model, title = first.model, first.name
    quants = tuple(each.quant for each in group if each.quant)
    if first.is_named_by_path:
        names = tuple(each.paths[0].name for each in group)
        quants = names if len(group) > 1 else ()
        if quants:
            model, title = path_argument(first.paths[0].parent), sanitize(name_without_quant(names[0]) or first.name)
    return ModelEntry(
        Section.DISK if first.place is None else Section.ADDED,
        model,
        title,
        sanitize(_about(group, title)),
        quants,
        first.reason if len(group) == 1 else "",
        tuple(path for each in group for path in each.paths),
        first.place,
    )


def _about(group: Sequence[LocalModel], title: str) -> str:
    """Return how many quants there are, or which the only one is where its title does not say so."""
    if len(group) > 1:
        return f"{format_count(len(group))} quants"
    quant = group[0].quant or ""
    return "" if quant in title.lower() else quant


def _downloads(count: int | None) -> str:
    return "" if count is None else f"{format_count(count)} a month"
