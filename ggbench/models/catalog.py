"""The catalog of models known by id, shipped and the user's own. Errors name the line, as the file is written by
hand.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
import msgspec.structs

from ggbench import paths
from ggbench.errors import UnknownName, UsageError
from ggbench.files import get_cached, put_cached
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.text import sanitize

HUB_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""Pattern of a Hub repo name, `org/name`."""


def _text_like(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None


_is_quant = _text_like(r"[\w-]+")
_Accepted = tuple[Callable[[Any], bool], str]
_ABOUT: Mapping[str, _Accepted] = {
    "id": (_text_like(r"[a-z0-9][a-z0-9._-]*"), "lower-case letters, digits and . _ -"),
    "title": (lambda value: isinstance(value, str) and value.isprintable(), "one line of text"),
    "repo": (_text_like(HUB_REPO.pattern), "a Hub repo as org/name"),
    "file_pattern": (_text_like(r"[\w.-]*\{quant\}[\w.-]*\.gguf"), "a name such as mine-{quant}.gguf"),
    "quants": (
        lambda value: isinstance(value, list) and all(map(_is_quant, value)),
        'a list such as ["q8_0", "q4_k_m"]',
    ),
    "tied_in_config": (lambda value: isinstance(value, bool), "true or false"),
}
_WHOLE: _Accepted = (lambda value: type(value) is int, "a whole number")
_FLAG: _Accepted = (lambda value: isinstance(value, bool), "true or false")
_TYPES: Mapping[object, _Accepted] = {
    "str": (lambda value: isinstance(value, str), "text in quotes"),
    "int": _WHOLE,
    "int | None": _WHOLE,
    "float": (lambda value: type(value) in (int, float), "a number"),
    "bool": _FLAG,
    "bool | None": _FLAG,
}
_SHAPE = {name: _TYPES[kind] for name, kind in Hyperparameters.__annotations__.items()}
_REQUIRED = Hyperparameters.__struct_fields__[: -len(Hyperparameters.__struct_defaults__)]

_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)| \(at end of document\)")


class CatalogModel(msgspec.Struct, frozen=True):
    """One model of the catalog."""

    id: str
    """The MODEL argument; lower case."""
    title: str
    repo: str | None
    """Hub repo of the GGUF files; None if no official one is known."""
    file_pattern: str | None
    """File name in `repo` with `{quant}` as a placeholder; shard numbers precede the suffix."""
    hyper: Hyperparameters
    quants: tuple[str, ...]
    """Quants known to be in `repo`, lower case; empty if unknown."""
    origin: Literal["shipped", "user"]
    """`user` if any value comes from the user's file."""
    tied_in_config: bool | None = None
    """Whether config.json ties the output to the embedding; None: same as the GGUF."""


class Catalog(msgspec.Struct, frozen=True):
    """All known models, in the order of the files."""

    models: tuple[CatalogModel, ...]

    def __iter__(self) -> Iterator[CatalogModel]:
        return iter(self.models)

    def model(self, model_id: str) -> CatalogModel:
        """Return the model with this id, in any case; UnknownName has the nearest ids and how to search the Hub."""
        found = next((model for model in self.models if model.id == model_id.lower()), None)
        if found is None:
            ids = (model.id for model in self.models)
            error = UnknownName("model", model_id, ids, listed_by="ggbench models")
            error.hint += f"; a Hub repo is org/name: ggbench models --search {shlex.quote(sanitize(model_id))}"
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
    UsageError, with file and line, for any error in either.
    """
    entries = {entry.id: entry for entry in _shipped(shipped_models_file())}
    user_file = paths.user_models_file() if user_file is None else user_file
    for entry in _read(user_file, "user"):
        entries[entry.id] = entry.over(entries.get(entry.id))
    return Catalog(tuple(entry.model for entry in entries.values()))


@functools.cache
def _shipped(path: Path) -> list[_Entry]:
    return _read(path, "shipped")


class _File(msgspec.Struct, frozen=True, dict=True):
    """One models.toml, whose errors name their lines; tomllib does not keep them."""

    path: Path
    text: str = ""

    @functools.cached_property
    def lines(self) -> dict[tuple[int, str], int]:
        """First line of each key by the index of its `[[model]]`, whose header has the key ``; -1 is the top level."""
        found: dict[tuple[int, str], int] = {}
        n_models, table = 0, -1
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                name = header[1].strip("\"'")
                table = n_models if name == "model" else -2
                n_models += name == "model"
                for key in ((-1, name), (-1, name.split(".")[0]), (table, "")):
                    found.setdefault(key, number)
            elif match := _KEY.match(line):
                found.setdefault((table, match[1]), number)
        return found

    def fail(self, what: str, line: int | None = None) -> NoReturn:
        """Raise UsageError for a line; None to name only the file."""
        shipped = shipped_models_file()
        hint = f"the format is explained at the top of {shipped}" if self.path != shipped else "reinstall ggbench"
        raise UsageError(f"{self.path}{'' if line is None else f', line {line}'}: {what}", hint)


class _Entry(msgspec.Struct, frozen=True, dict=True):
    """One `[[model]]` as written."""

    id: str
    values: Mapping[str, Any]
    origin: Literal["shipped", "user"]
    file: _File
    number: int
    """Index of this `[[model]]` in its file."""

    def over(self, base: _Entry | None) -> _Entry:
        """Return the entry with missing keys taken from `base`."""
        return self if base is None else msgspec.structs.replace(self, values={**base.values, **self.values})

    def fail(self, key: str, what: str) -> NoReturn:
        """Raise UsageError at a key's line, or at the header's if the key is absent."""
        places = ((self.number, key), (self.number, ""), (-1, "model"))
        self.file.fail(what, next((self.file.lines[place] for place in places if place in self.file.lines), None))

    def check(self) -> None:
        """Raise UsageError unless every key is known and has a value of its type."""
        for key, value in {"id": self.id, **self.values}.items():
            if key not in _ABOUT and key not in _SHAPE:
                self.fail(key, f"unknown key {key!r}{_nearest(key)}")
            accepts, accepted = _ABOUT.get(key) or _SHAPE[key]
            if not accepts(value):
                self.fail(key, f"{key} has to be {accepted}, not {value!r}")

    @functools.cached_property
    def model(self) -> CatalogModel:
        """The entry as a model. Raises UsageError if keys are missing or values inconsistent."""
        missing = [name for name in _REQUIRED if name not in self.values]
        if missing:
            self.fail("", f"model {self.id!r} is missing {', '.join(missing)}")
        try:
            hyper = Hyperparameters(**{name: value for name, value in self.values.items() if name in _SHAPE})
        except UsageError as error:
            words = re.findall(r"\w+", error.message)
            culprit = next((word for word in words if (self.number, word) in self.file.lines), "")
            self.fail(culprit, f"model {self.id!r}: {error.message}")
        return CatalogModel(
            id=self.id,
            title=self.values.get("title", self.id),
            repo=self.values.get("repo"),
            file_pattern=self.values.get("file_pattern"),
            hyper=hyper,
            quants=tuple(dict.fromkeys(quant.lower() for quant in self.values.get("quants", ()))),
            origin=self.origin,
            tied_in_config=self.values.get("tied_in_config"),
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
        file = _File(path, data.decode("utf-8-sig").replace("\r\n", "\n"))
        document = _parsed(file.text) if origin == "shipped" else tomllib.loads(file.text)
    except UnicodeDecodeError as error:
        _File(path).fail("this is not UTF-8 text", data.count(b"\n", 0, error.start) + 1)
    except (ValueError, RecursionError) as error:
        where = _AT_LINE.search(str(error))
        line = int(where[1]) if where and where[1] else max(1, len(file.text.splitlines())) if where else None
        file.fail(_AT_LINE.sub("", str(error)), line)
    tables = document.pop("model", [])
    for name in document:
        what = f'unknown name {name!r}; a model begins with [[model]], then id = "..."'
        file.fail(what, file.lines.get((-1, name)))
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        file.fail("each model begins with [[model]], in two pairs of brackets", file.lines.get((-1, "model")))
    entries: dict[str, _Entry] = {}
    for number, table in enumerate(tables):
        entry = _Entry(table.get("id", ""), table, origin, file, number)
        entry.check()
        if entry.id in entries:
            entry.fail("id", f"a second model has the id {entry.id!r}")
        entries[entry.id] = entry
    return list(entries.values())


def _parsed(text: str) -> dict[str, Any]:
    """Return a TOML document, from the disk if it was parsed before: tomllib takes 10 ms for the shipped models."""
    cache = paths.caches_dir() / "models" / f"{zlib.crc32(text.encode()):08x}-{len(text)}.json"
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(get_cached(cache) or b"", type=dict[str, Any])
    document = tomllib.loads(text)
    put_cached(cache, msgspec.json.encode(document))
    return document


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, (*_ABOUT, *_SHAPE), n=1)
    return f"; did you mean {near[0]}?" if near else ""
