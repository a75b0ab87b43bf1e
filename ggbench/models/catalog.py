"""The catalog of models known by id: shipped, then of `models --update`, then the user's own. Errors name the line, as
the files are written by hand.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import msgspec.structs
from msgspec import Meta

from ggbench import __version__, paths
from ggbench.errors import BadFile, UnknownName, UsageError
from ggbench.files import get_cached, make_folders, put_cached, write_as
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.text import sanitize

HUB_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""Pattern of a Hub repo name, `org/name`."""


_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]*$"
_Quant = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$")]
_Bytes = Annotated[int, Meta(gt=0)]
_REQUIRED = "id", *Hyperparameters.__struct_fields__[: -len(Hyperparameters.__struct_defaults__)]

_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""")
_OF_ERROR = re.compile(r"(?:\$\.(?:hyper\.)?|unknown field `)(\w+)")
"""Key in a message of msgspec."""
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)| \(at end of document\)")


Origin = Literal["shipped", "updated", "user"]


_BY = ", by ggbench "
"""In the first line of an installed update, between its source and the version that installed it."""
_WITHOUT_SHAPE = ("deepseek-v4", "glm-5.2")
"""Models whose layouts `gguf_file.layout` lacks."""


class CatalogModel(msgspec.Struct, frozen=True):
    """One model of the catalog; but for `hyper` and `origin`, the keys of an entry that are not hyperparameters."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """The MODEL argument; lower case."""
    hyper: Hyperparameters
    origin: Origin
    """The last file that a value comes from: `updated` is that of `models --update`, `user` the user's own."""
    title: Annotated[str, Meta(pattern=_LINE)] = ""
    """Defaults to the id."""
    repo: Annotated[str, Meta(pattern=f"^{HUB_REPO.pattern}$")] | None = None
    """Hub repo of the GGUF files; None if no official one is known."""
    file_pattern: Annotated[str, Meta(pattern=r"^[\w.-]*\{quant\}[\w.-]*\.gguf$")] | None = None
    """File name in `repo` with `{quant}` as a placeholder; shard numbers precede the suffix."""
    quants: tuple[_Quant, ...] = ()
    """Quants known to be in `repo`, lower case; empty if unknown."""
    tied_in_config: bool | None = None
    """Whether config.json ties the output to the embedding; None: same as the GGUF."""
    file_bytes: dict[_Quant, _Bytes] = {}
    """Sizes of published files, by quant, whose mixture of types is the publisher's own."""
    scores: dict[Annotated[str, Meta(pattern=_LINE)], float] = {}
    """What the publisher's model card states, by benchmark; nobody checked it here."""
    mmproj_bytes: _Bytes | None = None
    """Size of the published 16-bit projector for images, possibly rounded; None if unpublished."""

    @property
    def family(self) -> str:
        """First word of the id, e.g. `qwen3.6` or `gemma`; lists are grouped by it."""
        return self.id.partition("-")[0]


_ABOUT = frozenset(CatalogModel.__struct_fields__) - {"hyper", "origin"}


class Catalog(msgspec.Struct, frozen=True):
    """All known models, in the order of the files."""

    models: tuple[CatalogModel, ...]

    def __iter__(self) -> Iterator[CatalogModel]:
        return iter(self.models)

    def find(self, model_id: str) -> CatalogModel | None:
        """Return the model with this id, in any case."""
        return next((model for model in self.models if model.id == model_id.lower()), None)

    def model(self, model_id: str, *tags: str) -> CatalogModel:
        """Return the model with this id, in any case; UnknownName has the nearest ids and how to search the Hub.

        Of `qwen3:14b`, as Ollama names it, the tag may be a part of the id.
        """
        found = self.find(model_id)
        if found is None:
            ids = (model.id for model in self.models)
            error = UnknownName("model", model_id, ids, listed_by="ggbench models")
            if model_id.lower().startswith(_WITHOUT_SHAPE):
                error.hint = "ggbench cannot make a twin of this model, but plans its GGUF files: ggbench plan ORG/NAME"
            error.hint += f"; a Hub repo is org/name: ggbench models --search {shlex.quote(sanitize(model_id))}"
            if len(tags) == 1 and (named := self.find(f"{model_id}-{tags[0]}")) is not None:
                error.hint = f"in the catalog it is {named.id}"
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
    """Load the shipped models, those of `models --update`, and the user's own.

    `user_file` defaults to the one in the config directory. An entry overrides that of its id in the files before key
    by key, or adds a model. Only the shipped file must exist. Raises UsageError, with file and line, for any error.
    """
    user_file = paths.user_models_file() if user_file is None else user_file
    return _built(
        [*_shipped(shipped_models_file()), *_read(paths.updated_models_file(), "updated"), *_read(user_file, "user")]
    )


class CatalogUpdate(msgspec.Struct, frozen=True):
    file: str
    """The copy that is read from now on; removing it undoes the update."""
    source: str
    """What it was copied from, with the commit of a Hub repo; printable."""
    added: tuple[str, ...]
    """Ids that the shipped catalog lacks."""
    changed: tuple[str, ...]
    """Ids whose shipped values differ."""


def update_catalog(file: Path, source: str) -> CatalogUpdate:
    """Copy a catalog file to the data folder if the whole catalog is valid with it; it replaces an earlier one.

    Raises BadFile, with file and line, and UsageError if the user's own file, which overrides it, is not valid with it.
    """
    shipped = _shipped(shipped_models_file())
    hint = f"nothing was changed; the format is explained at the top of {shipped_models_file()}"
    try:
        update = _read(file, "updated")
        models = _built([*shipped, *update])
    except UsageError as error:
        raise BadFile(error.message, hint) from None
    if not update:
        raise BadFile(f"{sanitize(str(file))} has no [[model]]", hint)
    _built([*shipped, *update, *_read(paths.user_models_file(), "user")])
    landed = paths.updated_models_file()
    with contextlib.suppress(OSError):
        make_folders(landed.parent)
    write_as(landed, f"# {source}{_BY}{__version__}\n{update[0].file.text}".encode(), force=True)
    mine, known = {each.id for each in models if each.origin == "updated"}, {each.id for each in shipped}
    return CatalogUpdate(str(landed), source, tuple(sorted(mine - known)), tuple(sorted(mine & known)))


def updated_from() -> tuple[str, bool] | None:
    """Return the source of the installed update, and whether this version of ggbench installed it; None without one."""
    with contextlib.suppress(OSError), paths.updated_models_file().open(encoding="utf-8", errors="replace") as file:
        source, _, version = file.readline().removeprefix("#").strip().partition(_BY)
        return sanitize(source), version == __version__
    return None


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
        if self.path == paths.updated_models_file():
            hint = "repeat ggbench models --update, or remove the file"
        raise UsageError(f"{sanitize(str(self.path))}{'' if line is None else f', line {line}'}: {what}", hint)


class _Entry(msgspec.Struct, frozen=True, dict=True):
    """One `[[model]]` as written."""

    id: str
    values: Mapping[str, Any]
    origin: Origin
    file: _File
    number: int
    """Index of this `[[model]]` in its file."""

    def over(self, base: _Entry | None) -> _Entry:
        """Return the entry with missing keys taken from `base`, or `base` if no value differs."""
        if base is None or self.values.items() <= base.values.items():
            return base or self
        return msgspec.structs.replace(self, values={**base.values, **self.values})

    def fail(self, key: str, what: str) -> NoReturn:
        """Raise UsageError at a key's line, or at the header's if the key is absent."""
        places = ((self.number, key), (self.number, ""), (-1, "model"))
        self.file.fail(what, next((self.file.lines[place] for place in places if place in self.file.lines), None))

    @functools.cached_property
    def model(self) -> CatalogModel:
        """The entry as a model. Raises UsageError if keys are missing or unknown, or values wrong or inconsistent."""
        about = {name: value for name, value in self.values.items() if name in _ABOUT}
        hyper = {name: value for name, value in self.values.items() if name not in about}
        try:
            model = msgspec.convert({**about, "hyper": hyper, "origin": self.origin}, CatalogModel)
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `")
            if "missing required" in text:
                missing = [name for name in _REQUIRED if name not in self.values]
                self.fail("", f"model {self.id!r} is missing {', '.join(missing)}")
            found = _OF_ERROR.search(text) or _OF_ERROR.search(place)
            key = found[1] if found else ""
            is_text = " matching regex" in text  # which is no help
            self.fail(key, f"{key}: {f'{self.values.get(key)!r} is not of its form' if is_text else text}")
        except UsageError as error:
            words = re.findall(r"\w+", error.message)
            culprit = next((word for word in words if (self.number, word) in self.file.lines), "")
            self.fail(culprit, f"model {self.id!r}: {error.message}")
        return msgspec.structs.replace(
            model,
            title=model.title or model.id,
            quants=tuple(dict.fromkeys(quant.lower() for quant in model.quants)),
            file_bytes={quant.lower(): size for quant, size in model.file_bytes.items()},
        )


def _built(entries: Iterable[_Entry]) -> Catalog:
    merged: dict[str, _Entry] = {}
    for entry in entries:
        merged[entry.id] = entry.over(merged.get(entry.id))
    return Catalog(tuple(entry.model for entry in merged.values()))


@functools.cache
def _shipped(path: Path) -> list[_Entry]:
    return _read(path, "shipped")


def _read(path: Path, origin: Origin) -> list[_Entry]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if origin != "shipped":
            return []
        raise UsageError(f"{path} is missing", "reinstall ggbench") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "make it a readable file, or move it") from None
    try:
        file = _File(path, data.decode("utf-8-sig").replace("\r\n", "\n"))
        document = tomllib.loads(file.text) if origin == "user" else _parsed(file.text)
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
        entry = _Entry(str(table.get("id", "")), table, origin, file, number)
        if entry.id in entries:
            entry.fail("id", f"a second model has the id {entry.id!r}")
        entries[entry.id] = entry
    return list(entries.values())


def _parsed(text: str) -> dict[str, Any]:
    """Return a TOML document, from the disk if it was parsed before: tomllib takes 10 ms for the shipped models."""
    cache = paths.caches_dir() / "models" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(get_cached(cache) or b"", type=dict[str, Any])
    document = tomllib.loads(text)
    put_cached(cache, msgspec.json.encode(document))
    return document
