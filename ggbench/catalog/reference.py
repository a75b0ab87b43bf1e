"""What a person types as MODEL, taken apart: a catalog id, a repo of the Hub, a path, or a twin of one of them.

Nothing is looked for but whether a path exists, so that a name means the same with and without a network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ggbench.catalog.hub_address import parse_address, parse_repo_file
from ggbench.catalog.models import HUB_REPO
from ggbench.errors import UsageError
from ggbench.plain import plain

MAIN = "main"
"""The revision of a repo where none is named."""

_FORMS = "MODEL is a catalog id, org/name or hf:org/name, a path, synth:<id> or twin:<org/name>"
_HUB_NAME = re.compile(
    rf"(?P<repo>{HUB_REPO.pattern})(?:@(?P<revision>refs/[a-z]+/[A-Za-z0-9][\w.-]*|[A-Za-z0-9][\w.-]*))?", re.ASCII
)
"""`org/name`, and `org/name@revision` for a branch, a tag, a commit or a pull request of it."""


@dataclass(frozen=True, slots=True)
class CatalogRef:
    """A model of the catalog by its id, `qwen1.5-7b`."""

    id: str
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class HubRef:
    """A repo of the Hub, `org/name` or `hf:org/name`."""

    repo: str
    quant: str | None = None
    revision: str = MAIN


@dataclass(frozen=True, slots=True)
class PathRef:
    """A GGUF file, or a folder with some in it."""

    path: Path
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class SynthRef:
    """A twin of a catalog model, `synth:qwen1.5-7b`."""

    id: str
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class TwinRef:
    """A twin of a published file from its real header, `twin:org/name`."""

    repo: str
    quant: str | None = None
    revision: str = MAIN


ModelRef = CatalogRef | HubRef | PathRef | SynthRef | TwinRef


def parse_model(text: str) -> ModelRef:
    """MODEL or MODEL:QUANT taken apart, by the first of these rules that holds.

    1. What exists on this disk is a path: a folder goes before a catalog id and a Hub repo of the same spelling, and a
       name with a colon in it before the same name with a QUANT.
    2. The address of a page of the Hub, as a browser has it, is the repo, and a file's page the repo with the file as
       QUANT. So is `org/name/file.gguf`, unless `org` is here. Both may follow `hf:` and `twin:`.
    3. `synth:`, `hf:` and `twin:` in front, in any case, say what it is.
    4. With a `:QUANT` at its end, which has no slash, the rest is looked at by these rules; but what rule 5 takes for a
       path and is not there keeps a colon before `.gguf`, as in `/models/a:b.gguf`.
    5. What begins with `/`, `./`, `../` or `~`, ends in `.gguf`, or has more than one slash is a path.
    6. With one slash it is a Hub repo, `org/name`, which a `@revision` may follow; with none a catalog id.

    `hf:org/name` and `./name` leave no doubt.
    Raises UsageError for what is none of them.
    """
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} names no model", _FORMS)
    if _exists(text):
        return PathRef(_path(text))
    text = _normalize(text)
    prefix, _, rest = text.partition(":")
    if prefix.lower() in ("synth", "hf", "twin"):
        name, quant = _split_quant(rest, rest.partition(":"))
        if prefix.lower() == "synth":
            if not name or "/" in name:
                raise UsageError(
                    f"{text!r} is not synth:<id>",
                    f"a twin of a repo is twin:{name}; see the ids with: ggbench models"
                    if _HUB_NAME.fullmatch(name)
                    else "see the ids with: ggbench models",
                )
            return SynthRef(name.lower(), quant)
        hub_name = _HUB_NAME.fullmatch(name)
        if hub_name is None:
            is_id = prefix.lower() == "twin" and name and "/" not in name
            raise UsageError(
                f"{text!r} is not {prefix.lower()}:org/name",
                f"a twin of a model of the catalog is synth:{plain(name)}" if is_id else _FORMS,
            )
        kind = HubRef if prefix.lower() == "hf" else TwinRef
        return kind(hub_name["repo"], quant, hub_name["revision"] or MAIN)
    head, colon, tail = text.rpartition(":")
    if colon and "/" not in tail and (_exists(head) or (_looks_like_path(head) and not tail.lower().endswith(".gguf"))):
        return PathRef(_path(head), _split_quant(text, (head, colon, tail))[1])
    name, quant = _split_quant(text, text.partition(":"))
    if quant is None and _looks_like_path(text):
        return PathRef(_path(text))
    if hub_name := _HUB_NAME.fullmatch(name):
        return HubRef(hub_name["repo"], quant, hub_name["revision"] or MAIN)
    return PathRef(_path(text)) if "/" in text else CatalogRef(name.lower(), quant)


def model_label(model: str, ref: ModelRef) -> str:
    """MODEL as the person wrote it, a `:QUANT` at its end left out, and an address as `org/name`; printable."""
    if isinstance(ref, HubRef | TwinRef):
        model = _normalize(model)
    return plain(model if ref.quant is None else model[: -len(ref.quant) - 1])


def wanted_quants(ref: ModelRef, quants: Sequence[str]) -> tuple[str, ...]:
    """The quants that were named, the one in MODEL first, in lower case and each once."""
    return tuple(dict.fromkeys(quant.lower() for quant in (ref.quant, *quants) if quant is not None))


def _normalize(text: str) -> str:
    """An address or a file of a repo as `org/name:QUANT`; everything else as it is."""
    prefix, colon, rest = text.partition(":")
    if prefix.lower() in ("hf", "twin"):
        named = parse_address(rest) or parse_repo_file(rest)
        return text if named is None else f"{prefix}{colon}{named}"
    named = parse_address(text)
    if named is None and not _exists(text.partition("/")[0]):
        named = parse_repo_file(text)
        if named is not None and not _HUB_NAME.fullmatch(named.partition(":")[0]):
            named = None
    if named is None:
        return text
    return f"hf:{named}" if _exists(named.partition(":")[0]) else named


def _split_quant(text: str, parts: tuple[str, str, str]) -> tuple[str, str | None]:
    name, colon, quant = parts
    if colon and not quant.strip():
        raise UsageError(f"no QUANT after the colon of {text!r}", "write MODEL:QUANT, or leave the colon out")
    return name, quant if colon else None


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..") or text.lower().endswith(".gguf")


def _exists(text: str) -> bool:
    try:
        return bool(text) and _path(text).exists()
    except OSError:
        return False


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
