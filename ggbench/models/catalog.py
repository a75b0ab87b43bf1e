"""The catalog of models known by id: shipped, then of `models --update`, then the user's own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

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

Origin = Literal["shipped", "updated", "user"]


_BY = ", by ggbench "
"""In the first line of an installed update, between its source and the version that installed it."""


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
    mmproj_bytes: _Bytes | None = None
    """Size of the published 16-bit projector for images, possibly rounded; None if unpublished."""
    scores: dict[str, float] = {}
    """Benchmark scores of the model's card, by name; catalogs have them, and nothing shows them."""

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
        if found is not None:
            return found
        error = UnknownName("model", model_id, (model.id for model in self.models), listed_by="ggbench models")
        error.hint += f"; a Hub repo is org/name: ggbench models --search {shlex.quote(sanitize(model_id))}"
        named = self.find("-".join((model_id, *tags)))
        if named is not None:
            error.hint = f"in the catalog it is {named.id}"
        raise error

    def of_repo(self, repo: str) -> CatalogModel | None:
        """Return the first model with this Hub repo, in any case; None if there is none."""
        return next((model for model in self.models if (model.repo or "").lower() == repo.lower()), None)

    def named(self, name: str) -> CatalogModel | None:
        """Return the model of a plan or run: `twin:ID`, its id or its Hub repo; None for another."""
        bare = name.removeprefix("twin:")
        return self.find(bare) or self.of_repo(bare)


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
        [
            *_shipped(shipped_models_file()),
            *_read(paths.updated_models_file(), "updated"),
            *_read(user_file, "user"),
        ]
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

    Raises BadFile, and UsageError if the user's own file, which overrides it, is not valid with it.
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
    write_as(landed, f"# {source}{_BY}{__version__}\n{_text_of(file)}".encode(), force=True)
    mine, known = {each.id for each in models if each.origin == "updated"}, {each.id for each in shipped}
    return CatalogUpdate(str(landed), source, tuple(sorted(mine - known)), tuple(sorted(mine & known)))


def updated_from() -> tuple[str, bool] | None:
    """Return the source of the installed update, and whether this version of ggbench installed it; None without one."""
    with (
        contextlib.suppress(OSError),
        paths.updated_models_file().open(encoding="utf-8", errors="replace") as file,
    ):
        source, _, version = file.readline().removeprefix("#").strip().partition(_BY)
        return sanitize(source), version == __version__
    return None


class _Entry(msgspec.Struct, frozen=True, dict=True):
    """One `[[model]]` as written."""

    id: str
    values: Mapping[str, Any]
    origin: Origin
    path: Path

    def over(self, base: _Entry | None) -> _Entry:
        """Return the entry with missing keys taken from `base`, or `base` if no value differs."""
        if base is None or self.values.items() <= base.values.items():
            return base or self
        return msgspec.structs.replace(self, values={**base.values, **self.values})

    @functools.cached_property
    def model(self) -> CatalogModel:
        """The entry as a model. Raises UsageError if keys are missing or unknown, or values wrong or inconsistent."""
        about = {name: value for name, value in self.values.items() if name in _ABOUT}
        hyper = {name: value for name, value in self.values.items() if name not in about}
        try:
            model = msgspec.convert({**about, "hyper": hyper, "origin": self.origin}, CatalogModel)
        except (msgspec.ValidationError, UsageError) as error:
            what = str(error).replace(" - at `$.hyper`", "").replace("$.hyper.", "").replace("$.", "")
            raise _error(self.path, f"model {self.id!r}: {what}") from None
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
    if origin != "shipped" and not os.path.lexists(path):
        return []
    text = _text_of(path)
    try:
        document = tomllib.loads(text) if origin == "user" else _parsed(text)
    except (ValueError, RecursionError) as error:
        raise _error(path, str(error)) from None
    tables = document.pop("model", [])
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _error(path, 'a model begins with [[model]], in two pairs of brackets, then id = "..."')
    entries: dict[str, _Entry] = {}
    for table in tables:
        entry = _Entry(str(table.get("id", "")), table, origin, path)
        if entry.id in entries:
            raise _error(path, f"a second model has the id {entry.id!r}")
        entries[entry.id] = entry
    return list(entries.values())


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise _error(path, "this is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "make it a readable file, or move it"
        ) from None


def _error(path: Path, what: str) -> UsageError:
    shipped = shipped_models_file()
    hint = f"the format is explained at the top of {shipped}"
    if path == shipped:
        hint = "reinstall ggbench"
    elif path == paths.updated_models_file():
        hint = "repeat ggbench models --update, or remove the file"
    return UsageError(f"{sanitize(str(path))}: {sanitize(what)}", hint)


def _parsed(text: str) -> dict[str, Any]:
    """Return a TOML document, from the disk if it was parsed before: tomllib takes 10 ms for the shipped models."""
    cache = paths.caches_dir() / "models" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(get_cached(cache) or b"", type=dict[str, Any])
    document = tomllib.loads(text)
    put_cached(cache, msgspec.json.encode(document))
    return document
