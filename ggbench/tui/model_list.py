"""The models in the Library, by section: added by hand, on this disk, in the catalog, on the Hub.

Quants of a model in one folder are one model, whichever program stored them.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.quants import name_without_quant
from ggbench.hub.repo_records import RepoSummary
from ggbench.models.added_places import typed_path
from ggbench.models.catalog import HUB_REPO, Catalog
from ggbench.models.disk import LocalModel, path_argument
from ggbench.text import sanitize, shorten, shorten_alike
from ggbench.tui.tables import has_words
from ggbench.units import format_count

_LONG_SECTION = 20
"""Number of models above which those of a family share a line that unfolds them."""
_SIZE = re.compile(r"(?<![^\W_])[a-z]?\d[\dx.]*[bm](?![^\W_])", re.IGNORECASE)
_GGUF = re.compile(r"[-_.]gguf$", re.IGNORECASE)


class Section(enum.StrEnum):
    """The source of a model; the value is the section's heading."""

    ADDED = "added by hand"
    SERVERS = "servers"
    DISK = "on this disk"
    CATALOG = "catalog"
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
    """Files on this disk, including shards; empty for a Hub repo and the catalog."""
    place: Path | None = None
    """The added folder or file that contains it."""
    family: str = ""
    """The group in a section; empty on the Hub, whose order is the search's."""

    @property
    def server(self) -> str | None:
        """The base URL of an added server; None for anything else."""
        return self.model if self.section is Section.SERVERS else None

    @property
    def key(self) -> str:
        return f"{self.section.name}:{self.place or ''}:{self.title}:{self.model}"

    @property
    def family_key(self) -> str:
        return f"{self.heading}:{self.family}"

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
    """List all models known without a Hub search, and the added servers.

    A section has them by family: those on this disk by name, those of the catalog by size. A model of the catalog that
    nobody published is listed as its twin, the only file that one can have.
    """
    entries = [ModelEntry(Section.SERVERS, url, sanitize(url).removeprefix("http://")) for url in servers]
    entries += _on_disk(local, sorted({model.family for model in catalog}, key=len, reverse=True))
    entries += [
        ModelEntry(Section.CATALOG, model.id, model.id, quants=model.quants, family=model.family)
        if model.repo
        else ModelEntry(Section.CATALOG, f"twin:{model.id}", model.id, family=model.family)
        for model in sorted(catalog, key=lambda model: (model.family, count_params(model.hyper)))
    ]
    return tuple(entries)


def grouped(entries: Iterable[ModelEntry]) -> Iterator[tuple[str, list[list[ModelEntry]]]]:
    """Yield each heading with its models: in a long section a list for each family, in a short one a single list."""
    for heading, section in groupby(entries, key=lambda entry: entry.heading):
        members = list(section)
        is_long = len(members) > _LONG_SECTION
        yield heading, [list(group) for _, group in groupby(members, key=lambda each: each.family if is_long else "")]


def short_titles(titles: Sequence[str], width: int) -> Iterator[str]:
    """Yield the names of a list in at most `width` characters.

    A longer one loses `-GGUF`, then its vendor if no other vendor has that model, and is cut where that keeps the size,
    or where it keeps the names distinct.
    """
    plain = [title if len(title) <= width else _GGUF.sub("", title) for title in titles]
    times = Counter(_GGUF.sub("", title.rpartition("/")[2]) for title in titles)
    names = [(title, title.rpartition("/")[2]) for title in plain]
    bare = [name if len(title) > width and times[name] == 1 else title for title, name in names]
    alike = shorten_alike(bare, width)
    sized = [_cut_beside_size(*each, width) for each in zip(bare, alike, strict=True)]
    yield from sized if len(set(sized)) >= len(set(alike)) else alike


def _cut_beside_size(title: str, cut: str, width: int) -> str:
    sizes = [*_SIZE.finditer(title)]
    if len(title) <= width or not sizes or sizes[-1].group() in cut:
        return cut
    if sizes[-1].end() < width:
        return shorten(title, width)
    rest = title[sizes[-1].start() :]
    end = rest if len(rest) <= width // 2 else f"{sizes[-1].group()}…"
    return f"{title[: max(0, width - len(end) - 1)]}…{end}"


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


def _on_disk(local: Sequence[LocalModel], families: Sequence[str]) -> Iterable[ModelEntry]:
    """Return one entry for each model, those added by hand first, each family together."""
    added = {path for model in local if model.place is not None for path in model.paths}
    groups: dict[Hashable, list[LocalModel]] = {}
    for model in local:
        is_listed_above = model.place is None and model.is_named_by_path and added.issuperset(model.paths)
        is_own_twin = model.place is None and model.model.startswith("twin:")
        if not is_own_twin and not is_listed_above:
            groups.setdefault((model.place, *_group(model)), []).append(model)
    found = [_entry(sorted(group, key=lambda model: -(model.file_bytes or 0)), families) for group in groups.values()]
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


def _entry(group: Sequence[LocalModel], families: Sequence[str]) -> ModelEntry:
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
        _family(title, families),
    )
