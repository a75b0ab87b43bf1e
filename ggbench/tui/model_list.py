"""The models in the Library, by section: added by hand, on this disk, twins, in the catalog, on the Hub.

Quants of a model in one folder are one model, whichever program stored them.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
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

_LONG_SECTION = 20
"""Number of models from which a section of the catalog is grouped by family."""


class Section(enum.StrEnum):
    """The source of a model; the value is the section's heading."""

    ADDED = "added by hand"
    SERVERS = "servers"
    DISK = "on this disk"
    TWINS = "twins: no download"
    CATALOG = "catalog, on the Hub"
    HUB = "found on the Hub"


class ModelEntry(msgspec.Struct, frozen=True):
    section: Section
    model: str
    """MODEL as accepted by `plan` and `bench`; empty for an unreadable folder. Untrusted text."""
    title: str
    about: str = ""
    """A short note after the title; printable."""
    quants: tuple[str, ...] = ()
    """The quants to plan; empty means all."""
    reason: str = ""
    """Why it cannot be measured, printable; empty if it can."""
    files: tuple[Path, ...] = ()
    """Files on this disk, including shards; empty for a Hub repo and for twins."""
    place: Path | None = None
    """The added folder or file that contains it."""
    family: str = ""
    """The group in a long section of the catalog; empty for other models."""

    @property
    def server(self) -> str | None:
        """The base URL of an added server; None for anything else."""
        return self.model if self.section is Section.SERVERS else None

    @property
    def key(self) -> str:
        return f"{self.section.name}:{self.place or ''}:{self.title}:{self.model}"

    @property
    def heading(self) -> str:
        """The heading above it: the added place, or the section for other models."""
        return self.section.value if self.place is None else sanitize(path_argument(self.place))

    @property
    def needs_network(self) -> bool:
        """Whether listing its quants needs the Hub or a server; they are listed once it is chosen."""
        return self.section in (Section.HUB, Section.SERVERS)

    def matches(self, text: str) -> bool:
        return has_words(f"{self.title} {self.model}", text)


def list_models(catalog: Catalog, local: Sequence[LocalModel], servers: Sequence[str] = ()) -> tuple[ModelEntry, ...]:
    """List all models known without a Hub search, and the added servers."""
    twins = twins_by_model(local)
    entries = [ModelEntry(Section.SERVERS, url, sanitize(url).removeprefix("http://")) for url in servers]
    entries += _on_disk(local)
    for model in catalog:
        n_here = len(twins.get(model.id, ()))
        about = f"{n_here} made" if n_here else ""
        entries.append(ModelEntry(Section.TWINS, f"twin:{model.id}", f"twin:{model.id}", about, family=model.family))
    published = (model for model in catalog if model.repo)
    entries += [
        ModelEntry(Section.CATALOG, model.id, model.id, quants=model.quants, family=model.family) for model in published
    ]
    return tuple(entries)


def grouped(entries: Iterable[ModelEntry]) -> Iterator[tuple[tuple[str, ...], list[ModelEntry]]]:
    """Yield the models of each group with the headings above it: its section, in a long section also its family."""
    for heading, section in groupby(entries, key=lambda entry: entry.heading):
        members, headings = list(section), [heading]
        is_long = len(members) > _LONG_SECTION
        for family, group in groupby(members, key=lambda entry: entry.family if is_long else ""):
            yield (*headings, f" {family}") if family else tuple(headings), list(group)
            headings = []


def found_models(found: Iterable[RepoSummary]) -> list[ModelEntry]:
    entries = []
    for repo in found:
        downloads = "" if repo.downloads is None else f"{format_count(repo.downloads)} a month"
        entries.append(ModelEntry(Section.HUB, repo.repo, sanitize(repo.repo), "gated" if repo.gated else downloads))
    return entries


def named_repo(text: str) -> ModelEntry | None:
    """Return the repo named by the text, `org/name`; None for other text and for a path."""
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
    """Return the entries; those with equal names in a section get the nearest distinguishing folder."""
    same: dict[tuple[str, str], list[ModelEntry]] = {}
    for entry in entries:
        same.setdefault((entry.heading, entry.title), []).append(entry)
    titles: dict[str, str] = {}
    for group in same.values():
        above = zip_longest(*(reversed(entry.files[0].parent.parts) if entry.files else () for entry in group))
        folders = next((names for names in above if len(set(names)) == len(names)), ()) if len(group) > 1 else ()
        for entry, folder in zip(group, folders, strict=False):
            if folder:
                titles[entry.key] = f"{sanitize(folder)}/{entry.title}"
    return [replace(entry, title=titles.get(entry.key, entry.title)) for entry in entries]


def _group(model: LocalModel) -> tuple[Hashable, ...]:
    """Return the key shared by the quants of a model: the repo, or the folder and the name without the quant."""
    if not model.is_named_by_path:
        return (model.model or model.name,)
    return model.paths[0].parent, name_without_quant(model.paths[0].name).lower()


def _entry(group: Sequence[LocalModel]) -> ModelEntry:
    """Return the entry for a model's quants: several files are selected by name in their folder, a single one by
    path.
    """
    first = group[0]
    model, title = first.model, first.name
    quants = tuple(each.quant for each in group if each.quant)
    if first.is_named_by_path:
        names = tuple(each.paths[0].name for each in group)
        quants = names if len(group) > 1 else ()
        if quants:
            model, title = path_argument(first.paths[0].parent), sanitize(name_without_quant(names[0]) or first.name)
    about = f"{format_count(len(group))} quants"
    if len(group) == 1:  # the quant, unless the title has it
        quant = first.quant or ""
        about = "" if quant in title.lower() else quant
    return ModelEntry(
        Section.DISK if first.place is None else Section.ADDED,
        model,
        title,
        sanitize(about),
        quants,
        first.reason if len(group) == 1 else "",
        tuple(path for each in group for path in each.paths),
        first.place,
    )
