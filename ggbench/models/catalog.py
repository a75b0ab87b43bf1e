"""The catalog of models known by id: shipped, then the user's own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import msgspec.structs
from msgspec import Meta

from ggbench import paths
from ggbench.errors import UnknownName, UsageError
from ggbench.files import get_cached, put_cached
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.record import Record
from ggbench.text import sanitize, shorten

HUB_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""Pattern of a Hub repo name, `org/name`."""


_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]*$"
_LONGEST_LIST = 200
_Quant = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$")]
_Bytes = Annotated[int, Meta(gt=0)]

Origin = Literal["shipped", "user"]


class CatalogModel(msgspec.Struct, frozen=True):
    """One model of the catalog; but for `hyper` and `origin`, the keys of an entry that are not hyperparameters."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """The MODEL argument; lower case."""
    hyper: Hyperparameters
    origin: Origin
    """The last file that a value comes from: `user` is the user's own."""
    title: Annotated[str, Meta(pattern=_LINE)] = ""
    """Defaults to the id."""
    repo: Annotated[str, Meta(pattern=f"^{HUB_REPO.pattern}$")] | None = None
    """Hub repo of the GGUF files; None if no official one is known."""
    file_pattern: Annotated[str, Meta(pattern=r"^[\w.-]*\{quant\}[\w.-]*\.gguf$")] | None = None
    """File name in `repo` with `{quant}` as a placeholder; shard numbers precede the suffix."""
    mtp_repo: Annotated[str, Meta(pattern=f"^{HUB_REPO.pattern}$")] | None = None
    """Hub repo of files with MTP layers, if those of `repo` lack them; None if none is known."""
    quants: tuple[_Quant, ...] = ()
    """Quants known to be in `repo`, lower case; empty if unknown."""
    file_bytes: dict[_Quant, _Bytes] = {}
    """Sizes of published files, by quant, whose mixture of types is the publisher's own."""
    mmproj_bytes: _Bytes | None = None
    """Size of the published 16-bit projector for images, possibly rounded; None if unpublished."""
    mmproj_vision: dict[str, int | str] = {}
    """What its header says of the encoder, without `clip.vision.`, for its compute buffer; empty if unknown."""
    superseded_by: str = ""
    """Id of the model that is run instead of it today; empty for a current one."""
    score: Annotated[float, Meta(gt=0, le=100)] | None = None
    """Percent of GPQA Diamond that its publisher reports; None if unknown."""
    score_source: Annotated[str, Meta(pattern=_LINE)] = ""
    """The model card or report that has the score."""

    @property
    def family(self) -> str:
        """First word of the id, e.g. `qwen3.6` or `gemma`; lists are grouped by it."""
        return self.id.partition("-")[0]


_ABOUT = frozenset(CatalogModel.__struct_fields__) - {"hyper", "origin"}


class Catalog(Record):
    """All known models, in the order of the files."""

    models: tuple[CatalogModel, ...]

    def __iter__(self) -> Iterator[CatalogModel]:
        return iter(self.models)

    def find(self, model_id: str) -> CatalogModel | None:
        """Return the model with this id, in any case."""
        return next((model for model in self.models if model.id == model_id.lower()), None)

    def model(self, model_id: str, *tags: str) -> CatalogModel:
        """Return the model with this id, in any case; UnknownName has those of the family, or the nearest and how to
        search the Hub.

        Of `qwen3:14b`, as Ollama names it, the tag may be a part of the id.
        """
        found = self.find(model_id)
        if found is not None:
            return found
        error = UnknownName("model", model_id, (model.id for model in self.models), listed_by="ggbench models")
        error.hint += f"; a Hub repo is org/name: ggbench models --search {shlex.quote(sanitize(model_id))}"
        members = self.family("-".join((model_id, *tags))) or self.family(model_id) or self._spelled(model_id)
        if members:
            current = [each for each in members if not each.superseded_by] or members
            error.hint = shorten(f"the catalog has {', '.join(each.id for each in current)}", _LONGEST_LIST)
        raise error

    def family(self, name: str) -> tuple[CatalogModel, ...]:
        """Return the models whose ids begin with these words: `qwen3.6`, `gemma-4`, or `qwen3.x` for any version."""
        wanted = pattern_of(name.lower(), r"(?=-|\Z)")
        return tuple(model for model in self.models if wanted.match(model.id))

    def _spelled(self, name: str) -> tuple[CatalogModel, ...]:
        """Return the models whose ids begin so but for hyphens and the v of a version: `glm5`, `deepseek4`."""
        return tuple(model for model in self.models if squeezed(model.id).startswith(squeezed(name)))

    @property
    def current(self) -> tuple[CatalogModel, ...]:
        """Models that none supersedes."""
        return tuple(model for model in self.models if not model.superseded_by)

    def successors(self, model: CatalogModel) -> tuple[CatalogModel, ...]:
        """Return the models that supersede one, the oldest first; the last is current. Empty for a current model."""
        found = list[CatalogModel]()
        after = self.find(model.superseded_by)
        while after is not None and after not in found:
            found.append(after)
            after = self.find(after.superseded_by)
        return tuple(found)

    def of_repo(self, repo: str) -> CatalogModel | None:
        """Return the first model with this Hub repo, in any case; None if there is none."""
        return next((model for model in self.models if (model.repo or "").lower() == repo.lower()), None)

    def called(self, file_name: str) -> CatalogModel | None:
        """Return the model whose id is in a file's or a repo's name, the longest of several; None without one."""
        name = f"-{_dashed(file_name)}-"
        found = [model for model in self.models if f"-{_dashed(model.id)}-" in name]
        return max(found, key=lambda model: len(model.id), default=None)

    def named(self, name: str) -> CatalogModel | None:
        """Return the model of a plan or run: `twin:ID`, its id or its Hub repo; None for another."""
        bare = name.removeprefix("twin:")
        return self.find(bare) or self.of_repo(bare)


def squeezed(name: str) -> str:
    """Return a name without what spellings differ in: `deepseek4` for `DeepSeek-V4`."""
    return re.sub(r"[-_ ]|v(?=\d)", "", name.lower())


def pattern_of(name: str, end: str = "") -> re.Pattern[str]:
    """Return what matches a name, in which `.x` is any version, before a pattern."""
    return re.compile(re.escape(name).replace(r"\.x", r"\.\d+") + end)


def _dashed(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def shipped_models_file() -> Path:
    """Return `models.toml` of this installation: inside an installed package, at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "models.toml"
    return installed if installed.exists() else package.parent / "models.toml"


def load_catalog(user_file: Path | None = None) -> Catalog:
    """Load the shipped models and the user's own.

    `user_file` defaults to the one in the config directory. An entry overrides the shipped one of its id key by key, or
    adds a model. Only the shipped file must exist. Raises UsageError, with file and line, for any error.
    """
    own = _read(user_file or paths.user_models_file(), "user")
    merged = {entry.id: entry for entry in _shipped(shipped_models_file())}
    for entry in own:
        merged[entry.id] = entry.over(merged.get(entry.id))
    return Catalog(tuple(entry.model for entry in merged.values()))


class _Entry(Record, dict=True):
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


@functools.cache
def _shipped(path: Path) -> list[_Entry]:
    return _read(path, "shipped")


def _read(path: Path, origin: Origin) -> list[_Entry]:
    if origin == "user" and not os.path.lexists(path):
        return []
    try:
        document = _parsed(path.read_text("utf-8-sig"))
    except OSError as error:
        raise _error(path, f"it cannot be read: {error.strerror}") from None
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


def _error(path: Path, what: str) -> UsageError:
    shipped = shipped_models_file()
    hint = "reinstall ggbench" if path == shipped else f"the format is explained at the top of {shipped}"
    return UsageError(f"{sanitize(str(path))}: {sanitize(what)}", hint)


def _parsed(text: str) -> dict[str, Any]:
    """Return a TOML document, from the disk if it was parsed before: tomllib takes 10 ms for the shipped models."""
    cache = paths.caches_dir() / "models" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(get_cached(cache) or b"", type=dict[str, Any])
    document = tomllib.loads(text)
    put_cached(cache, msgspec.json.encode(document))
    return document
