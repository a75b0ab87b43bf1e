"""The catalog of models known by id: the shipped `models.toml`, overridden by the user's own.

The user's file is written by hand, so every error names its file and line.
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
from ggbench.gguf_file.blueprint import Hyperparameters
from ggbench.plain import plain

HUB_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""Pattern of a Hub repo name, `org/name`."""

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
    """The MODEL argument; lower case."""
    title: str
    repo: str | None
    """Hub repo of the GGUF files; None where no official one is known."""
    file_pattern: str | None
    """File name in `repo` with `{quant}` as a placeholder; shard numbers precede the suffix."""
    hyper: Hyperparameters
    quants: tuple[str, ...]
    """Quants known to be in `repo`, lower case; empty when unknown."""
    origin: Literal["shipped", "user"]
    """`user` when any value comes from the user's file."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known models, in the order of their files."""

    models: tuple[CatalogModel, ...]

    def __iter__(self) -> Iterator[CatalogModel]:
        return iter(self.models)

    def find(self, model_id: str) -> CatalogModel | None:
        """Return the model with this id, in any case; None if there is none."""
        return next((model for model in self.models if model.id == model_id.lower()), None)

    def model(self, model_id: str) -> CatalogModel:
        """Return the model with this id, in any case. Raises UnknownName with the nearest ids and how to search the
        Hub.
        """
        found = self.find(model_id)
        if found is None:
            error = UnknownName("model", model_id, (model.id for model in self.models))
            error.hint += f"; a Hub repo is org/name: ggbench models --search {shlex.quote(plain(model_id))}"
            raise error
        return found

    def of_repo(self, repo: str) -> CatalogModel | None:
        """Return the first model with this Hub repo, in any case; None if there is none."""
        return next((model for model in self.models if (model.repo or "").lower() == repo.lower()), None)


def shipped_models_file() -> Path:
    """Return `models.toml` of this installation: inside an installed package, at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "models.toml"
    return installed if installed.exists() else package.parent / "models.toml"


def load_catalog(user_file: Path | None = None) -> Catalog:
    """Load the shipped models and the user's own; `user_file` defaults to the one in the config directory.

    An entry with a shipped id overrides it key by key, any other adds a model. A missing user file adds nothing. Raises
    UsageError with file and line for any error in either.
    """
    entries = {entry.id: entry for entry in _read(shipped_models_file(), "shipped")}
    user_file = paths.user_models_file() if user_file is None else user_file
    for entry in _read(user_file, "user"):
        entries[entry.id] = entry.over(entries.get(entry.id))
    return Catalog(tuple(entry.build() for entry in entries.values()))


class _Lines:
    """Line numbers of table headers and keys in a TOML file, which tomllib does not keep."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.tables: list[dict[str, int]] = []
        """Line of each key of the n-th `[[model]]`; its header's line under the empty key."""
        self.top: dict[str, int] = {}
        """First line of each top-level table or key."""
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
        """Raise UsageError for a line; None names the file alone."""
        shipped = shipped_models_file()
        hint = f"the format is explained at the top of {shipped}" if self.path != shipped else "reinstall ggbench"
        raise UsageError(f"{self.path}{'' if line is None else f', line {line}'}: {what}", hint)


@dataclass(frozen=True)
class _Entry:
    """One `[[model]]` as written, with its keys checked for name and type."""

    id: str
    values: Mapping[str, object]
    origin: Literal["shipped", "user"]
    lines: _Lines
    number: int
    """Index of this `[[model]]` in its file."""

    @property
    def table(self) -> Mapping[str, int]:
        """Line numbers of this entry's keys; of the whole file's where models are an inline array."""
        tables = self.lines.tables
        return tables[self.number] if self.number < len(tables) else self.lines.top

    def over(self, base: _Entry | None) -> _Entry:
        """Return the entry with missing keys taken from `base`."""
        return self if base is None else dataclasses.replace(self, values={**base.values, **self.values})

    def fail(self, key: str, what: str) -> NoReturn:
        """Raise UsageError at a key's line, or at the header's where the key is absent."""
        self.lines.fail(self.table.get(key) or self.table.get("") or self.table.get("model"), what)

    def check(self) -> None:
        """Raise UsageError unless every key is known and has a value of its type."""
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
        """Return the model; raises UsageError where keys are missing or their values are inconsistent."""
        missing = [name for name in _REQUIRED if name not in self.values]
        if missing:
            self.fail("", f"model {self.id!r} is missing {', '.join(missing)}")
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
