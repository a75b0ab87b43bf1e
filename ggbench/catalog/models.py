"""The models that ggbench knows by id: the shipped `models.toml`, and the person's own on top of it.

People write the second file by hand, so whatever is wrong in one is told with its file and line.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from ggbench import paths
from ggbench.errors import UnknownName, UsageError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.plain import plain

HUB_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""The form of a Hub repo's name, `org/name`."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)
_SHAPE = {field.name: field for field in dataclasses.fields(Hyperparameters)}
_REQUIRED = tuple(name for name, field in _SHAPE.items() if field.default is dataclasses.MISSING)
_ABOUT = ("id", "title", "repo", "file_pattern", "quants")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text in quotes"),
    "int": ((int,), "a whole number"),
    "int | None": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}

_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)| \(at end of document\)")


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One model of the catalog."""

    id: str
    """What a person types as MODEL; lower case."""
    title: str
    repo: str | None
    """Hub repo of the GGUF files; None where no official one is known."""
    file_pattern: str | None
    """Name of a file in `repo` with `{quant}` in it; a split file has its shard numbers before the suffix."""
    hyper: Hyperparameters
    quants: tuple[str, ...]
    """Quants that `repo` is known to hold, in lower case; empty when unknown."""
    origin: Literal["shipped", "user"]
    """`user` when any of it comes from the person's own file."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known models, in the order of their files."""

    models: tuple[CatalogModel, ...]

    def __iter__(self) -> Iterator[CatalogModel]:
        return iter(self.models)

    def find(self, model_id: str) -> CatalogModel | None:
        """The model with this id, in any case; None when there is none."""
        return next((model for model in self.models if model.id == model_id.lower()), None)

    def model(self, model_id: str) -> CatalogModel:
        """The model with this id, in any case; UnknownName lists the nearest, and how to find a repo instead."""
        found = self.find(model_id)
        if found is None:
            error = UnknownName("model", model_id, (model.id for model in self.models))
            error.hint += f"; a repo of the Hub is org/name: ggbench models --search {shlex.quote(plain(model_id))}"
            raise error
        return found


def shipped_models_file() -> Path:
    """`models.toml` of this installation: inside an installed package, at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "models.toml"
    return installed if installed.exists() else package.parent / "models.toml"


def load_catalog(user_file: Path | None = None) -> Catalog:
    """The shipped models with the person's own on top; `user_file` defaults to the one in the config directory.

    An entry whose id is shipped overrides key by key, any other adds a model. A user file that does not exist adds
    nothing. UsageError names file and line of whatever is wrong in either.
    """
    entries = {entry.id: entry for entry in _read(shipped_models_file(), "shipped")}
    user_file = paths.user_models_file() if user_file is None else user_file
    for entry in _read(user_file, "user"):
        entries[entry.id] = entry.over(entries.get(entry.id))
    return Catalog(tuple(entry.build() for entry in entries.values()))


class _Lines:
    """A TOML file's text with the line of every table header and key, which tomllib does not keep."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.tables: list[dict[str, int]] = []
        """Line of each key of the n-th `[[model]]`; its header's under the key of no text."""
        self.top: dict[str, int] = {}
        """Line of the first table or key of each name at the top level."""
        inside_text = False
        table: dict[str, int] | None = None
        for number, line in enumerate(text.splitlines(), 1):
            was_inside, inside_text = inside_text, inside_text ^ bool((line.count('"""') + line.count("'''")) % 2)
            if was_inside:
                continue
            if header := _HEADER.match(line):
                name = header[1].strip("\"'")
                self.top.setdefault(name, number)
                self.top.setdefault(name.split(".")[0], number)
                table = {"": number}
                if name == "model":
                    self.tables.append(table)
            elif key := _KEY.match(line):
                (self.top if table is None else table).setdefault(key[1], number)

    def fail(self, line: int | None, what: str) -> NoReturn:
        """Raise UsageError for a line; None points at the file alone."""
        shipped = shipped_models_file()
        hint = f"the form is explained at the top of {shipped}" if self.path != shipped else "reinstall ggbench"
        raise UsageError(f"{self.path}{'' if line is None else f', line {line}'}: {what}", hint)


@dataclass(frozen=True)
class _Entry:
    """One `[[model]]` as it was written, checked for the names and types of its keys."""

    id: str
    values: Mapping[str, object]
    origin: Literal["shipped", "user"]
    lines: _Lines
    number: int
    """Which `[[model]]` of its file it is."""

    @property
    def table(self) -> Mapping[str, int]:
        """Lines of the keys that are written here; of the whole file's where the models are an inline array."""
        tables = self.lines.tables
        return tables[self.number] if self.number < len(tables) else self.lines.top

    def over(self, base: _Entry | None) -> _Entry:
        """The entry with what it leaves out taken from `base`."""
        return self if base is None else dataclasses.replace(self, values={**base.values, **self.values})

    def fail(self, key: str, what: str) -> NoReturn:
        """Raise UsageError for a key's line, or for the header's where the key is not written here."""
        self.lines.fail(self.table.get(key) or self.table.get("") or self.table.get("model"), what)

    def check(self) -> None:
        """Raise UsageError unless each key is known and holds a value of its type."""
        for key, value in self.values.items():
            if key in _SHAPE:
                types, accepted = _TYPES[str(_SHAPE[key].type)]
                if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                    self.fail(key, f"{key} has to be {accepted}, not {value!r}")
            elif key not in _ABOUT:
                self.fail(key, f"unknown key {key!r}{_nearest(key, (*_ABOUT, *_SHAPE))}")
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            self.fail("id", f"id has to be lower-case letters, digits and . _ -, not {self.id!r}")
        title = self.values.get("title", "")
        if not isinstance(title, str) or not title.isprintable():
            self.fail("title", f"title has to be one line of text, not {title!r}")
        repo = self.values.get("repo", "org/name")
        if not isinstance(repo, str) or not HUB_REPO.fullmatch(repo):
            self.fail("repo", f"repo has to be a Hub repo as org/name, not {repo!r}")
        pattern = self.values.get("file_pattern", "{quant}.gguf")
        if not isinstance(pattern, str) or not re.fullmatch(r"[\w.-]*\{quant\}[\w.-]*\.gguf", pattern):
            self.fail("file_pattern", f"file_pattern has to be a name such as mine-{{quant}}.gguf, not {pattern!r}")
        quants = self.values.get("quants", [])
        if not isinstance(quants, list) or not all(isinstance(q, str) and re.fullmatch(r"[\w-]+", q) for q in quants):
            self.fail("quants", f'quants has to be a list such as ["q8_0", "q4_k_m"], not {quants!r}')

    def build(self) -> CatalogModel:
        """The model; raises UsageError where keys are missing or their values make no model."""
        missing = [name for name in _REQUIRED if name not in self.values]
        if missing:
            self.fail("", f"model {self.id!r} lacks {', '.join(missing)}")
        try:
            hyper = Hyperparameters(**{name: value for name, value in self.values.items() if name in _SHAPE})  # type: ignore[arg-type]
        except UsageError as error:
            culprit = next((word for word in re.findall(r"\w+", error.message) if word in self.table), "")
            self.fail(culprit, f"model {self.id!r}: {error.message}")
        text = {key: str(self.values[key]) for key in _ABOUT if key in self.values}
        quants = self.values.get("quants", [])
        assert isinstance(quants, list)
        return CatalogModel(
            id=self.id,
            title=text.get("title", self.id),
            repo=text.get("repo"),
            file_pattern=text.get("file_pattern"),
            hyper=hyper,
            quants=tuple(dict.fromkeys(str(quant).lower() for quant in quants)),
            origin=self.origin,
        )


def _read(path: Path, origin: Literal["shipped", "user"]) -> list[_Entry]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if origin == "user":
            return []
        raise UsageError(f"{path} is missing", "reinstall ggbench") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "make it a readable file, or move it") from None
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        _Lines(path, "").fail(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8 text")
    lines = _Lines(path, text)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        where = _AT_LINE.search(str(error))
        line = int(where[1]) if where and where[1] else max(1, len(text.splitlines())) if where else None
        lines.fail(line, _AT_LINE.sub("", str(error)))
    tables = document.pop("model", [])
    for name in document:
        lines.fail(lines.top.get(name), f'unknown name {name!r}; a model begins with [[model]], then id = "..."')
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        lines.fail(lines.top.get("model"), "each model begins with [[model]], in two pairs of brackets")
    entries: list[_Entry] = []
    for number, table in enumerate(tables):
        entry = _Entry(table.get("id", ""), table, origin, lines, number)
        entry.check()
        if any(entry.id == other.id for other in entries):
            entry.fail("id", f"a second model has the id {entry.id!r}")
        entries.append(entry)
    return entries


def _nearest(name: str, known: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
