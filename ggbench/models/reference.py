"""Parse the MODEL argument; only the existence of a path is checked, so a name means the same without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggbench.engines.server.address import Address, is_url
from ggbench.errors import UsageError
from ggbench.models.catalog import HUB_REPO
from ggbench.text import in_words, plain, shorten

MAIN = "main"
"""Default revision of a repo."""

_FORMS = (
    "MODEL is a catalog id, org/name or hf:org/name, a path, synth:<id>, twin:<org/name>, tf:<org/name or folder>, "
    "synth-tf:<id> or the URL of a server"
)
_HUB_NAME = re.compile(
    rf"(?P<repo>{HUB_REPO.pattern})(?:@(?P<revision>refs/[a-z]+/[A-Za-z0-9][\w.-]*|[A-Za-z0-9][\w.-]*))?", re.ASCII
)
"""`org/name`, or `org/name@revision` for a branch, a tag, a commit or a pull request."""


class _IdRef(msgspec.Struct, frozen=True):
    id: str
    quant: str | None = None


class CatalogRef(_IdRef, frozen=True):
    """A catalog model by its id, `qwen1.5-7b`."""


class SynthRef(_IdRef, frozen=True):
    """A twin of a catalog model, `synth:qwen1.5-7b`."""


class _RepoRef(msgspec.Struct, frozen=True):
    repo: str
    quant: str | None = None
    revision: str = MAIN


class HubRef(_RepoRef, frozen=True):
    """A Hub repo, `org/name` or `hf:org/name`."""


class TwinRef(_RepoRef, frozen=True):
    """A twin of a published file, made from its real header, `twin:org/name`."""


class PathRef(msgspec.Struct, frozen=True):
    """A GGUF file, or a folder of them."""

    path: Path
    quant: str | None = None


class EndpointRef(msgspec.Struct, frozen=True):
    """A server, `http://127.0.0.1:8080`; QUANT is the name of one of its models."""

    base_url: str
    quant: str | None = None


class SynthCheckpointRef(_IdRef, frozen=True):
    """A checkpoint of a catalog model with random weights, `synth-tf:qwen1.5-7b`."""


class HubCheckpointRef(_RepoRef, frozen=True):
    """A Hub repo with a config.json and safetensors, `tf:org/name`."""


class FolderCheckpointRef(msgspec.Struct, frozen=True):
    """A folder with a config.json, `tf:FOLDER`."""

    path: Path
    quant: str | None = None


FileRef = CatalogRef | HubRef | PathRef | SynthRef | TwinRef
"""What leads to a GGUF file."""
CheckpointRef = SynthCheckpointRef | HubCheckpointRef | FolderCheckpointRef
"""What leads to a checkpoint of Transformers."""
ModelRef = FileRef | CheckpointRef | EndpointRef
MEASURE_CHECKPOINTS = ("decode", "prefill", "speed", "bench", "maxctx")
"""Commands that measure a checkpoint."""
_TAKE_CHECKPOINTS = (*MEASURE_CHECKPOINTS, "plan", "limits", "inspect")


def parse_file_model(text: str) -> FileRef:
    """Return what `parse_model` does of a GGUF. Raises UsageError for a server and a checkpoint, too."""
    ref = parse_model(text)
    if isinstance(ref, CheckpointRef):
        raise UsageError(
            "this needs a GGUF, which a checkpoint of Transformers is not",
            f"{in_words(_TAKE_CHECKPOINTS)} take tf: and synth-tf:",
        )
    if isinstance(ref, EndpointRef):
        raise UsageError(
            "this needs a model file, which a server does not give",
            "decode, prefill, speed and bench measure a server; for the rest, name the file that it runs",
        )
    return ref


def parse_model(text: str) -> ModelRef:
    """Parse MODEL or MODEL:QUANT by the first rule that matches.

    1. An existing path is a path: a folder takes precedence over a catalog id and a Hub repo of the same spelling, and
       a name with a colon over the same name with a QUANT.
    2. The URL of a Hub page is its repo, and the URL of a file the repo with the file as QUANT. So is
       `org/name/file.gguf`, unless `org` exists locally. Both may follow `hf:` and `twin:`.
    3. Any other URL is a server.
    4. The prefixes `synth:`, `hf:`, `twin:`, `tf:` and `synth-tf:`, in any case, state the kind. What follows `tf:` is
       a folder where it exists or reads as a path, else a repo.
    5. Before a `:QUANT` suffix, which has no slash, the rest is parsed by these rules; a missing path of rule 6 keeps a
       colon before `.gguf`, as in `/models/a:b.gguf`.
    6. Text that begins with `/`, `./`, `../` or `~`, ends in `.gguf`, or has more than one slash is a path.
    7. With one slash it is a Hub repo, `org/name`, optionally with `@revision`; with none a catalog id.

    `hf:org/name` and `./name` are never ambiguous. Raises UsageError for text that matches no rule.
    """
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} is not a model", _FORMS)
    if path_exists(text):
        return PathRef(expand_path(text))
    prefix, colon, rest = text.partition(":")
    if colon and prefix.lower() == "tf":
        return _checkpoint(rest)
    text = _normalize(text)
    if is_url(text):
        return EndpointRef(Address.parse(text).base_url)
    if "://" in text:
        raise UsageError(f"{plain(text)!r} is not the URL of a server", _FORMS)
    prefix, _, rest = text.partition(":")
    if prefix.lower() in ("synth", "synth-tf", "hf", "twin"):
        name, quant = _split_quant(rest, rest.partition(":"))
        if prefix.lower() in ("synth", "synth-tf"):
            if not name or "/" in name:
                is_gguf = prefix.lower() == "synth" and _HUB_NAME.fullmatch(name)
                hint = f"a twin of a repo is twin:{name}; " if is_gguf else ""
                raise UsageError(f"{text!r} is not {prefix.lower()}:<id>", f"{hint}list the ids with: ggbench models")
            return (SynthRef if prefix.lower() == "synth" else SynthCheckpointRef)(name.lower(), quant)
        hub_name = _HUB_NAME.fullmatch(name)
        if hub_name is None:
            is_id = prefix.lower() == "twin" and name and "/" not in name
            raise UsageError(
                f"{text!r} is not {prefix.lower()}:org/name",
                f"a twin of a catalog model is synth:{plain(name)}" if is_id else _FORMS,
            )
        kind = HubRef if prefix.lower() == "hf" else TwinRef
        return kind(hub_name["repo"], quant, hub_name["revision"] or MAIN)
    head, colon, tail = text.rpartition(":")
    if (
        colon
        and "/" not in tail
        and (path_exists(head) or (_looks_like_path(head) and not tail.lower().endswith(".gguf")))
    ):
        return PathRef(expand_path(head), _split_quant(text, (head, colon, tail))[1])
    name, quant = _split_quant(text, text.partition(":"))
    if quant is None and _looks_like_path(text):
        return PathRef(expand_path(text))
    if hub_name := _HUB_NAME.fullmatch(name):
        return HubRef(hub_name["repo"], quant, hub_name["revision"] or MAIN)
    return PathRef(expand_path(text)) if "/" in text else CatalogRef(name.lower(), quant)


def _checkpoint(rest: str) -> HubCheckpointRef | FolderCheckpointRef:
    """Return what follows `tf:`. Raises UsageError."""
    if not rest.strip():
        raise UsageError("tf: names no checkpoint", "write tf:org/name, or tf:FOLDER with a config.json")
    if path_exists(rest):
        return FolderCheckpointRef(expand_path(rest))
    address = parse_address(rest)
    head, colon, quant = rest.rpartition(":")
    if colon and not address and "/" not in quant and (path_exists(head) or _looks_like_path(head)):
        return FolderCheckpointRef(expand_path(head), _split_quant(rest, (head, colon, quant))[1])
    name, named_quant = _split_quant(address or rest, (address or rest).partition(":"))
    hub_name = _HUB_NAME.fullmatch(name)
    if hub_name and not _looks_like_path(name):
        return HubCheckpointRef(hub_name["repo"], named_quant, hub_name["revision"] or MAIN)
    if "/" not in rest and not _looks_like_path(rest):
        raise UsageError(
            f"tf:{plain(rest)} is neither a folder nor org/name", f"of a catalog model: synth-tf:{plain(name)}"
        )
    return FolderCheckpointRef(expand_path(rest))


def model_label(model: str, ref: ModelRef) -> str:
    """Return MODEL as typed without `:QUANT`, and a URL of the Hub as `org/name`; printable."""
    if isinstance(ref, HubRef | TwinRef):
        model = _normalize(model)
    if isinstance(ref, HubCheckpointRef):
        return plain(f"tf:{ref.repo}" if ref.revision == MAIN else f"tf:{ref.repo}@{ref.revision}")
    return plain(model if ref.quant is None else model[: -len(ref.quant) - 1])


def wanted_quants(ref: ModelRef, quants: Sequence[str]) -> tuple[str, ...]:
    """Return the requested quants, the one in MODEL first, in lower case without duplicates."""
    return tuple(dict.fromkeys(quant.lower() for quant in (ref.quant, *quants) if quant is not None))


def _normalize(text: str) -> str:
    """Return a URL or a file of a repo as `org/name:QUANT`; any other text unchanged."""
    prefix, colon, rest = text.partition(":")
    if prefix.lower() in ("hf", "twin"):
        named = parse_address(rest) or parse_repo_file(rest)
        return text if named is None else f"{prefix}{colon}{named}"
    named = parse_address(text)
    if named is None and not path_exists(text.partition("/")[0]):
        named = parse_repo_file(text)
        if named is not None and not _HUB_NAME.fullmatch(named.partition(":")[0]):
            named = None
    if named is None:
        return text
    return f"hf:{named}" if path_exists(named.partition(":")[0]) else named


def _split_quant(text: str, parts: tuple[str, str, str]) -> tuple[str, str | None]:
    name, colon, quant = parts
    if colon and not quant.strip():
        raise UsageError(f"no QUANT after the colon of {text!r}", "write MODEL:QUANT, or leave the colon out")
    return name, quant if colon else None


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..") or text.lower().endswith(".gguf")


def path_exists(text: str) -> bool:
    """Return whether the text is a path that exists, relative to the current folder."""
    try:
        return bool(text) and expand_path(text).exists()
    except (OSError, ValueError):
        return False


def expand_path(text: str) -> Path:
    """Return the path with `~` expanded where somebody has that home."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - pathlib's raises where nobody has that home


_HOST = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_RESERVED_NAMES = ("datasets", "spaces", "docs", "models", "papers", "collections", "api")
"""First path segments of the Hub's own pages; no organization has these names."""
_REVISION_PAGES = ("tree", "blob", "resolve", "raw")
_ADDRESS_FORMS = "give a repo as org/name, or org/name:FILE.gguf"


def parse_address(text: str) -> str | None:
    """Return a URL of the Hub as `org/name[@revision][:file.gguf]`; None for other text.

    Raises UsageError for other pages of the Hub, and for the URL of a file elsewhere.
    """
    from urllib.parse import unquote

    rest = _without_host(text)
    if rest is None:
        return None
    parts = [unquote(part) for part in re.split(r"[?#]", rest)[0].strip("/").split("/")]
    repo, page, (revision, *path) = "/".join(parts[:2]), parts[2:3], parts[3:] or ["main"]
    if parts[0] in _RESERVED_NAMES or not HUB_REPO.fullmatch(re.split(r"[@:]", repo)[0]):
        raise UsageError(f"{shorten(text, 100)!r} is not the page of a model repo", _ADDRESS_FORMS)
    if not page or page[0] not in _REVISION_PAGES:
        return repo
    name = repo if revision == "main" else f"{repo}@{revision}"
    if not path:
        return name
    if not path[-1].lower().endswith(".gguf"):
        raise UsageError(
            f"{shorten(text, 100)!r} is {'a folder of' if page == ['tree'] else 'not a GGUF file in'} {repo}",
            _ADDRESS_FORMS,
        )
    return f"{name}:{'/'.join(path)}"


def parse_repo_file(text: str) -> str | None:
    """Return `org/name:file.gguf` for `org/name/file.gguf`, which may be nested deeper; None for any other form."""
    parts = text.split("/")
    if len(parts) < 3 or not all(parts) or parts[0].lower() in _RESERVED_NAMES:
        return None
    if ":" in text or not text.lower().endswith(".gguf"):
        return None
    return f"{'/'.join(parts[:2])}:{'/'.join(parts[2:])}"


def _without_host(text: str) -> str | None:
    endpoint = (os.environ.get("HF_ENDPOINT") or "").strip().rstrip("/")
    for start in (endpoint, _SCHEME.sub("", endpoint)):
        if start and text.lower().startswith(f"{start.lower()}/"):
            return text[len(start) + 1 :]
    if match := _HOST.match(text):
        return text[match.end() :]
    if _HOST.fullmatch(f"{text}/"):
        return ""
    if _SCHEME.match(text) and re.split(r"[?#]", text)[0].lower().endswith(".gguf"):
        raise UsageError(
            f"{shorten(text, 100)!r} is the URL of a file, but not of the Hub", "download it, and give its path"
        )
    return None
