"""Parse MODEL and QUANT, once, into a ModelRef; only the existence of a path is checked, so that a name means the same
without a network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.server.config import Address, is_url
from ggbench.errors import UsageError
from ggbench.models.catalog import HUB_REPO
from ggbench.paths import expand_path, path_exists
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


Kind = Literal["catalog", "synth", "hub", "twin", "path", "server", "synth-tf", "tf-hub", "tf-folder"]
MEASURE_CHECKPOINTS = ("decode", "prefill", "speed", "bench", "maxctx")
"""Commands that measure a checkpoint."""
_TAKE_CHECKPOINTS = (*MEASURE_CHECKPOINTS, "plan", "limits", "inspect")


class ModelRef(msgspec.Struct, frozen=True):
    """What MODEL and QUANTs name."""

    kind: Kind
    """`catalog`, `qwen1.5-7b`; `synth`, a twin of one, `synth:qwen1.5-7b`; `hub`, a repo, `org/name` or `hf:org/name`;
    `twin`, of a published file, from its real header, `twin:org/name`; `path`, a GGUF file or a folder; `server`, a
    URL, whose quants are the names of its models. Checkpoints of Transformers: `synth-tf`, of a catalog model with
    random weights, `synth-tf:qwen1.5-7b`; `tf-hub`, `tf:org/name`; `tf-folder`, `tf:FOLDER`.
    """
    name: str
    """Id in lower case, `org/name`, path with `~` expanded, or base URL."""
    quants: tuple[str, ...] = ()
    """Each once, that of MODEL:QUANT first, in lower case but for the models of a server; empty means all."""
    revision: str = MAIN
    label: str = ""
    """MODEL as typed without `:QUANT`, and a URL of the Hub as `org/name`; printable."""
    text: str = ""
    """MODEL as typed."""

    @property
    def path(self) -> Path:
        """The file or the folder."""
        return Path(self.name)

    @property
    def is_server(self) -> bool:
        """Whether a server has the model."""
        return self.kind == "server"

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a checkpoint of Transformers."""
        return self.kind in ("synth-tf", "tf-hub", "tf-folder")

    def of_quants(self, *quants: str) -> ModelRef:
        """Return the same model with these quants, in lower case, in place of those named."""
        return replace(self, quants=tuple(quant.lower() for quant in quants))

    def as_twin(self) -> ModelRef:
        """Return the twin of a catalog model, which needs no file; any other model unchanged."""
        return replace(self, kind="synth", label=f"synth:{self.label}") if self.kind == "catalog" else self

    def require_gguf(self) -> ModelRef:
        """Return this. Raises UsageError for a server and a checkpoint."""
        if self.is_checkpoint:
            raise UsageError(
                "this needs a GGUF, which a checkpoint of Transformers is not",
                f"{in_words(_TAKE_CHECKPOINTS)} take tf: and synth-tf:",
            )
        if self.is_server:
            raise UsageError(
                "this needs a model file, which a server does not give",
                "decode, prefill, speed and bench measure a server; for the rest, name the file that it runs",
            )
        return self


def parse_model(text: str, *quants: str) -> ModelRef:
    """Parse MODEL or MODEL:QUANT by the first rule that matches, and add the QUANTs beside it.

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
    ref = _parse(text)
    named = (*ref.quants, *quants)
    if not ref.is_server:
        named = tuple(quant.lower() for quant in named)
    return replace(ref, quants=tuple(dict.fromkeys(named)), text=text)


def _parse(text: str) -> ModelRef:
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} is not a model", _FORMS)
    if path_exists(text):
        return _path(text)
    prefix, colon, rest = text.partition(":")
    if colon and prefix.lower() == "tf":
        return _checkpoint(text, rest)
    text = _normalize(text)
    if is_url(text):
        return ModelRef("server", Address.parse(text).base_url, label=plain(text))
    if "://" in text:
        raise UsageError(f"{plain(text)!r} is not the URL of a server", _FORMS)
    prefix, _, rest = text.partition(":")
    prefix = prefix.lower()
    if prefix in ("synth", "synth-tf", "hf", "twin"):
        name, quant = _split_quant(rest, rest.partition(":"))
        if prefix in ("synth", "synth-tf"):
            if not name or "/" in name:
                is_gguf = prefix == "synth" and _HUB_NAME.fullmatch(name)
                hint = f"a twin of a repo is twin:{name}; " if is_gguf else ""
                raise UsageError(f"{text!r} is not {prefix}:<id>", f"{hint}list the ids with: ggbench models")
            return _ref("synth" if prefix == "synth" else "synth-tf", name.lower(), text, quant)
        hub_name = _HUB_NAME.fullmatch(name)
        if hub_name is None:
            is_id = prefix == "twin" and name and "/" not in name
            raise UsageError(
                f"{text!r} is not {prefix}:org/name",
                f"a twin of a catalog model is synth:{plain(name)}" if is_id else _FORMS,
            )
        return _repo("hub" if prefix == "hf" else "twin", hub_name, text, quant)
    head, colon, tail = text.rpartition(":")
    if (
        colon
        and "/" not in tail
        and (path_exists(head) or (_looks_like_path(head) and not tail.lower().endswith(".gguf")))
    ):
        return _ref("path", str(expand_path(head)), text, _split_quant(text, (head, colon, tail))[1])
    name, quant = _split_quant(text, text.partition(":"))
    if quant is None and _looks_like_path(text):
        return _path(text)
    if hub_name := _HUB_NAME.fullmatch(name):
        return _repo("hub", hub_name, text, quant)
    return _path(text) if "/" in text else _ref("catalog", name.lower(), text, quant)


def _checkpoint(text: str, rest: str) -> ModelRef:
    """Return what `tf:` and the rest mean. Raises UsageError."""
    if not rest.strip():
        raise UsageError("tf: names no checkpoint", "write tf:org/name, or tf:FOLDER with a config.json")
    if path_exists(rest):
        return _ref("tf-folder", str(expand_path(rest)), text)
    address = parse_address(rest)
    head, colon, quant = rest.rpartition(":")
    if colon and not address and "/" not in quant and (path_exists(head) or _looks_like_path(head)):
        return _ref("tf-folder", str(expand_path(head)), text, _split_quant(rest, (head, colon, quant))[1])
    name, named_quant = _split_quant(address or rest, (address or rest).partition(":"))
    hub_name = _HUB_NAME.fullmatch(name)
    if hub_name and not _looks_like_path(name):
        ref = _repo("tf-hub", hub_name, text, named_quant)
        return replace(ref, label=plain(f"tf:{ref.name}" if ref.revision == MAIN else f"tf:{ref.name}@{ref.revision}"))
    if "/" not in rest and not _looks_like_path(rest):
        raise UsageError(
            f"tf:{plain(rest)} is neither a folder nor org/name", f"of a catalog model: synth-tf:{plain(name)}"
        )
    return _ref("tf-folder", str(expand_path(rest)), text)


def _path(text: str) -> ModelRef:
    return _ref("path", str(expand_path(text)), text)


def _repo(kind: Kind, name: re.Match[str], text: str, quant: str | None) -> ModelRef:
    return replace(_ref(kind, name["repo"], text, quant), revision=name["revision"] or MAIN)


def _ref(kind: Kind, name: str, text: str, quant: str | None = None) -> ModelRef:
    """Return the model that a text with the quant at its end names."""
    label = text if quant is None else text[: -len(quant) - 1]
    return ModelRef(kind, name, () if quant is None else (quant,), label=plain(label))


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
