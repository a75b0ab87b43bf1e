"""The models in the Library: the best for the machine, added by hand, on this disk, in the catalog, on the Hub.

Quants of a model in one folder are one model, whichever program stored them.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from ggbench.errors import UsageError
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.repo_records import RepoSummary
from ggbench.models.added_places import typed_path
from ggbench.models.catalog import Catalog
from ggbench.models.disk import LocalModel, path_argument
from ggbench.models.reference import parse_model
from ggbench.models.subject import model_name
from ggbench.show import FITS_NOT
from ggbench.text import has_words, sanitize
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.decisions.pick.record import Pick

_LONG_SECTION = 20
"""Number of models above which those of a family share a line that unfolds them."""
_MOST_BEST = 3


class Section(enum.StrEnum):
    """The source of a model; the value is the section's heading."""

    BEST = "best models"
    ADDED = "added by hand"
    DISK = "on this disk"
    CATALOG = "catalog"
    HUB = "on the Hub"


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
    """Files on this disk, including shards; empty for a Hub repo and the catalog."""
    place: Path | None = None
    """The added folder or file that contains it."""
    family: str = ""
    """The group in a section; empty on the Hub, whose order is the search's."""
    quant: str = ""
    """The quant to run, of the best models."""

    @property
    def key(self) -> str:
        return f"{self.section.name}:{self.place or ''}:{self.title}:{self.model}"

    @property
    def heading(self) -> str:
        """The heading above it: the added place, or the section for other models."""
        return self.section.value if self.place is None else sanitize(path_argument(self.place))

    @property
    def needs_network(self) -> bool:
        """Whether listing its quants needs the Hub; they are listed once it is chosen."""
        return self.section is Section.HUB

    def matches(self, text: str) -> bool:
        return has_words(f"{self.title} {self.model}", text)


def list_models(catalog: Catalog, local: Sequence[LocalModel]) -> tuple[ModelEntry, ...]:
    """List all models known without a Hub search.

    A section has them by family: those on this disk by name, those of the catalog by size. A model of the catalog that
    nobody published is listed as its twin, the only file that one can have.
    """
    entries = [*_on_disk(local, sorted({model.family for model in catalog}, key=len, reverse=True))]
    entries += [
        ModelEntry(Section.CATALOG, model.id, model.id, quants=model.quants, family=model.family)
        if model.repo
        else ModelEntry(Section.CATALOG, f"twin:{model.id}", model.id, family=model.family)
        for model in sorted(catalog, key=lambda model: (model.family, count_params(model.hyper)))
    ]
    return tuple(entries)


class ListLine(NamedTuple):
    """A line of the tree of models."""

    level: int
    """0 for a section, 1 for a family or a model, 2 for a model of a family."""
    key: str
    title: str
    note: str = ""
    entry: ModelEntry | None = None
    """None for a section and a family."""


def lines_of(entries: Iterable[ModelEntry]) -> Iterator[ListLine]:
    """Yield each section with its models, which in a long one are below their family."""
    for heading, section in groupby(entries, key=lambda entry: entry.heading):
        members = list(section)
        yield ListLine(0, heading, heading, "tok/s" if members[0].section is Section.BEST else "")
        if len(members) <= _LONG_SECTION:
            yield from (_model_line(1, entry) for entry in members)
            continue
        for family, models in groupby(members, key=lambda entry: entry.family):
            alike = list(models)
            if len(alike) == 1:
                line = _model_line(1, alike[0])
                yield line._replace(title=f"  {line.title}")  # below the families' names
            else:
                yield ListLine(1, f"{heading}:{family}", sanitize(family), format_count(len(alike)))
                yield from (_model_line(2, entry) for entry in alike)


def _model_line(level: int, entry: ModelEntry) -> ListLine:
    title = f"{FITS_NOT} {entry.title}" if entry.reason else entry.title
    return ListLine(level, entry.key, title, entry.about, entry)


def best_models(pick: Pick) -> list[ModelEntry]:
    """Return the models to run on this machine: the pick and its alternatives, with their quants and speeds."""
    from ggbench.decisions.pick.show import FIGURES

    speed = next(figure for figure in FIGURES if figure.key == "tok_s")
    entries = dict[str, ModelEntry]()
    for listed in pick.listed:
        row, quant = listed.candidate.row, listed.candidate.quant
        about = sanitize(f"{quant} {speed.text(listed)}")
        entry = ModelEntry(Section.BEST, row.model, sanitize(model_name(row.subject)), about, quant=quant)
        entries.setdefault(row.model, entry)
    return list(entries.values())[:_MOST_BEST]


def found_models(found: Iterable[RepoSummary]) -> list[ModelEntry]:
    entries = []
    for repo in found:
        downloads = "" if repo.downloads is None else f"{format_count(repo.downloads)} a month"
        entries.append(
            ModelEntry(Section.HUB, repo.repo, sanitize(repo.repo), "gated" if repo.gated else downloads)
        )
    return entries


def named_repo(text: str) -> ModelEntry | None:
    """Return the repo that the text names, `org/name` or its URL, as the command line does; None for other text."""
    if "/" not in text or typed_path(text) is not None:
        return None
    try:
        named = parse_model(text.strip())
    except UsageError:  # not typed to its end
        return None
    name = named.label.removeprefix("hf:")
    return ModelEntry(Section.HUB, name, name, "open this repo", named.quants) if named.kind == "hub" else None


def _on_disk(local: Sequence[LocalModel], families: Sequence[str]) -> Iterable[ModelEntry]:
    """Return one entry for each model, those added by hand first, each family together."""
    added = {path for model in local if model.place is not None for path in model.paths}
    groups: dict[Hashable, list[LocalModel]] = {}
    for model in local:
        is_listed_above = model.place is None and model.is_named_by_path and added.issuperset(model.paths)
        is_own_twin = model.place is None and model.model.startswith("twin:")
        if not (is_own_twin or is_listed_above or model.is_draft):
            groups.setdefault((model.place, *_group(model)), []).append(model)
    found = [
        _entry(sorted(group, key=lambda model: -(model.file_bytes or 0)), families) for group in groups.values()
    ]
    found.sort(
        key=lambda entry: (
            entry.place is None,
            str(entry.place or ""),
            bool(entry.reason),
            entry.family,
            entry.title.lower(),
        )
    )
    return _distinct(found)


def _family(name: str, families: Sequence[str]) -> str:
    """Return the family of the catalog that a file's or a repo's name contains, else the name's first word."""
    words = name.rpartition("/")[2].lower()
    return next((family for family in families if family in words), words.partition("-")[0])


def _distinct(entries: Sequence[ModelEntry]) -> Iterable[ModelEntry]:
    """Return the entries; those with equal names in a section get their folder's, which a list cuts in the middle."""
    times = Counter((entry.heading, entry.title) for entry in entries)
    for entry in entries:
        is_named = times[entry.heading, entry.title] > 1 and entry.files
        folder = path_argument(entry.files[0].parent) if is_named else ""
        yield replace(entry, title=f"{sanitize(folder)}/{entry.title}") if folder else entry


def _group(model: LocalModel) -> tuple[Hashable, ...]:
    """Return the key shared by the quants of a model: the repo, or the folder and the name without the quant."""
    if not model.is_named_by_path:
        return (model.model or model.name,)
    return model.paths[0].parent, name_without_quant(model.paths[0].name).lower()


def _entry(group: Sequence[LocalModel], families: Sequence[str]) -> ModelEntry:
    """Return the entry for a model's quants."""
    first, (model, title, quants) = group[0], _named(group)
    if len(group) > 1:
        about = f"{format_count(len(group))} quants"
    else:
        about = "" if first.quant is None or first.quant in title.lower() else first.quant
    return ModelEntry(
        Section.DISK if first.place is None else Section.ADDED,
        model,
        title,
        sanitize(about),
        quants,
        first.reason if len(group) == 1 else "",
        tuple(path for each in group for path in each.paths),
        first.place,
        _family(title, families),
    )


def _named(group: Sequence[LocalModel]) -> tuple[str, str, tuple[str, ...]]:
    """Return MODEL, the title and the quants: several files are selected by name in their folder, one by its path."""
    first = group[0]
    if not first.is_named_by_path:
        return first.model, first.name, tuple(each.quant for each in group if each.quant)
    if len(group) == 1:
        return first.model, first.name, ()
    names = tuple(each.paths[0].name for each in group)
    return path_argument(first.paths[0].parent), sanitize(name_without_quant(names[0]) or first.name), names
