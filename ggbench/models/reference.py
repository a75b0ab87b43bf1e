"""Parse MODEL and QUANT into a ModelRef. Only the existence of paths is checked, so a name has the same meaning
offline.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from ggbench.engines.http.endpoint import Address, is_url
from ggbench.errors import UsageError
from ggbench.models.catalog import HUB_REPO
from ggbench.paths import expand_path, path_exists
from ggbench.plugins import load_plugin, plugin_names
from ggbench.record import Record
from ggbench.text import in_words, sanitize, shorten, without_password

MAIN = "main"
"""Default revision of a repo."""

_FORMS = "MODEL is a catalog id, org/name or hf:org/name, a path, twin:<id or org/name>, {own} or the URL of a server"
HUB_NAME = re.compile(
    rf"(?P<repo>{HUB_REPO.pattern})(?:@(?P<revision>refs/[a-z]+/[A-Za-z0-9][\w.-]*|[A-Za-z0-9][\w.-]*))?",
    re.ASCII,
)
"""`org/name`, or `org/name@revision` for a branch, a tag, a commit or a pull request."""


Kind = Literal["catalog", "twin", "hub", "published_twin", "path", "server", "own"]
MEASURE_OWN = ("decode", "prefill", "speed", "bench", "maxctx")
"""Commands that measure models in an engine's own format."""


class ModelRef(Record):
    """MODEL and QUANTs, parsed."""

    kind: Kind
    """`catalog`: `qwen1.5-7b`; `twin`: a twin of a catalog model, `twin:qwen1.5-7b`; `hub`: a repo, `org/name` or
    `hf:org/name`; `published_twin`: a twin of a published file, from its real header, `twin:org/name`; `path`: a GGUF
    file or a folder; `server`: a URL, whose quants are the names of its models; `own`: a model in another format.
    """
    name: str
    """Id in lower case, `org/name`, path with `~` expanded, or base URL."""
    quants: tuple[str, ...] = ()
    """Without duplicates, the one of MODEL:QUANT first; lower case, except paths and a server's models.
    Empty means all.
    """
    revision: str = MAIN
    engine: str = ""
    """Engine of a model in its own format; empty for a GGUF and a server."""
    form: str = ""
    """The engine's own kind of MODEL."""
    label: str = ""
    """MODEL as typed without `:QUANT`, and a URL of the Hub as `org/name`; printable."""
    text: str = ""
    """MODEL as typed."""

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def is_server(self) -> bool:
        return self.kind == "server"

    def of_quants(self, *quants: str) -> ModelRef:
        """Return the same model with these quants, in lower case."""
        return replace(self, quants=tuple(quant.lower() for quant in quants))

    def as_twin(self) -> ModelRef:
        """Return the twin of a catalog model; any other model unchanged."""
        return replace(self, kind="twin", label=f"twin:{self.label}") if self.kind == "catalog" else self

    def require_gguf(self) -> ModelRef:
        """Return this reference. Raises UsageError for a server or a model in another format."""
        if self.engine:
            options = own_models()[self.engine]
            raise UsageError(
                f"this command needs a GGUF file, not a {options.NOUN} of {options.CONFIG.program}",
                f"{in_words((*MEASURE_OWN, 'plan'))} take {' and '.join(f'{scheme}:' for scheme in options.SCHEMES)}",
            )
        if self.is_server:
            raise UsageError(
                "this command needs a model file, not a server",
                "decode, prefill, session, speed and bench measure servers; otherwise give the server's file",
            )
        return self


def parse_model(text: str, *quants: str) -> ModelRef:
    """Parse MODEL or MODEL:QUANT by the first rule that matches, and add the other QUANTs.

    1. An existing path is a path: a folder takes precedence over a catalog id and a Hub repo of the same spelling, and
       a name with a colon over the same name with a QUANT.
    2. The URL of a Hub page is its repo; the URL of a file is the repo with the file as QUANT, and so is
       `org/name/file.gguf`, unless `org` exists locally. Both are also allowed after `hf:` and `twin:`.
    3. Any other URL is a server.
    4. The prefixes `hf:` and `twin:`, and those of engines with another format, such as `transformers:`, state the
       kind, in any case.
    5. Text before a `:QUANT` suffix without a slash is parsed by these rules; a missing path of rule 6 keeps a colon
       before `.gguf`, as in `/models/a:b.gguf`.
    6. Text that begins with `/`, `./`, `../` or `~`, ends in `.gguf`, or has more than one slash is a path.
    7. With one slash it is a Hub repo, `org/name`, optionally with `@revision`; with none a catalog id.

    `hf:org/name` and `./name` are never ambiguous. Raises UsageError for text that matches no rule.
    """
    ref = _parse(text)
    named = (*ref.quants, *quants)
    if not ref.is_server:
        named = tuple(quant if quant.startswith(_PATH_STARTS) else quant.lower() for quant in named)
    return replace(ref, quants=tuple(dict.fromkeys(named)), text=text)


def _parse(text: str) -> ModelRef:
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} is not a model", _forms())
    if path_exists(text):
        return _path(text)
    prefix, colon, rest = text.partition(":")
    if colon and (engine := engine_of_scheme(prefix.lower())):
        parsed: ModelRef = load_plugin("ggbench.engines", engine, "models", "engine").parse(
            prefix.lower(), rest
        )
        return parsed
    text = _normalize(text)
    if "://" in text:
        if not is_url(text):
            raise UsageError(f"{sanitize(without_password(text))!r} is not the URL of a server", _forms())
        return ModelRef("server", Address.parse(text).base_url, label=sanitize(text))
    if text.lower().startswith(("hf:", "twin:")):
        return _parse_prefixed(text)
    return _parse_bare(text)


def _parse_prefixed(text: str) -> ModelRef:
    """Parse `hf:` or `twin:` and what follows."""
    prefix, _, rest = text.partition(":")
    is_twin = prefix.lower() == "twin"
    name, quant = split_quant(rest)
    if hub_name := HUB_NAME.fullmatch(name):
        return _repo("published_twin" if is_twin else "hub", hub_name, text, quant)
    if not is_twin:
        raise UsageError(f"{text!r} is not hf:org/name", _forms())
    if not name or "/" in name:
        raise UsageError(
            f"{text!r} is neither twin:<id> nor twin:org/name", "list the ids with: ggbench models"
        )
    return _ref("twin", name.lower(), text, quant)


def _parse_bare(text: str) -> ModelRef:
    """Parse a path, a Hub repo or a catalog id, by rules 5 to 7."""
    head, colon, tail = text.rpartition(":")
    is_path = path_exists(head) or (looks_like_path(head) and not tail.lower().endswith(".gguf"))
    if colon and "/" not in tail and is_path:
        return _ref("path", str(expand_path(head)), text, split_quant(text, last=True)[1])
    name, quant = split_quant(text)
    if quant is None and looks_like_path(text):
        return _path(text)
    if hub_name := HUB_NAME.fullmatch(name):
        return _repo("hub", hub_name, text, quant)
    return _path(text) if "/" in text else _ref("catalog", name.lower(), text, quant)


def _forms() -> str:
    return _FORMS.format(
        own=", ".join(form for options in own_models().values() for form in options.SCHEMES.values())
    )


def _path(text: str) -> ModelRef:
    return _ref("path", str(expand_path(text)), text)


def _repo(kind: Kind, name: re.Match[str], text: str, quant: str | None) -> ModelRef:
    return replace(_ref(kind, name["repo"], text, quant), revision=name["revision"] or MAIN)


def _ref(kind: Kind, name: str, text: str, quant: str | None = None) -> ModelRef:
    label = text if quant is None else text[: -len(quant) - 1]
    return ModelRef(kind, name, () if quant is None else (quant,), label=sanitize(label))


def _normalize(text: str) -> str:
    """Return a URL or a file of a repo as `org/name:QUANT`; any other text unchanged."""
    prefix, colon, rest = text.partition(":")
    if prefix.lower() in ("hf", "twin"):
        named = parse_address(rest) or parse_repo_file(rest)
        return text if named is None else f"{prefix}{colon}{named}"
    named = parse_address(text)
    if named is None and not path_exists(text.partition("/")[0]):
        named = parse_repo_file(text)
        if named is not None and not HUB_NAME.fullmatch(named.partition(":")[0]):
            named = None
    if named is None:
        return text
    return f"hf:{named}" if path_exists(named.partition(":")[0]) else named


def split_quant(text: str, *, last: bool = False) -> tuple[str, str | None]:
    """Split at the first colon, or the last, into MODEL and QUANT. Raises UsageError for an empty QUANT."""
    name, colon, quant = text.rpartition(":") if last else text.partition(":")
    if colon and not quant.strip():
        raise UsageError(f"no QUANT after the colon of {text!r}", "write MODEL:QUANT, or omit the colon")
    return name, quant if colon else None


_PATH_STARTS = ("/", "./", "../", "~")
_FILES = (".gguf", ".safetensors")


def looks_like_path(text: str) -> bool:
    """Return whether the text has the form of a path, whether or not it exists."""
    return text.startswith(_PATH_STARTS) or text in (".", "..") or text.lower().endswith(_FILES)


_HOST = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_RESERVED_NAMES = ("datasets", "spaces", "docs", "models", "papers", "collections", "api")
"""First path segments of the Hub's own pages; no organization has these names."""
_REVISION_PAGES = ("tree", "blob", "resolve", "raw")
_ADDRESS_FORMS = "write a repo as org/name, or org/name:FILE.gguf"


def parse_address(text: str) -> str | None:
    """Return a URL of the Hub as `org/name[@revision][:file.gguf]`; None for other text.

    Raises UsageError for other pages of the Hub, and for the URL of a GGUF elsewhere.
    """
    from urllib.parse import unquote

    rest = _without_host(text)
    if rest is None:
        return None
    parts = [unquote(part) for part in re.split(r"[?#]", rest)[0].strip("/").split("/")]
    repo, at, file = "/".join(parts[:2]), "", ""
    if len(parts) > 3 and parts[2] in _REVISION_PAGES:
        at = "" if parts[3] == MAIN else f"@{parts[3]}"
        file = "/".join(parts[4:])
    is_repo = parts[0] not in _RESERVED_NAMES and HUB_REPO.fullmatch(re.split(r"[@:]", repo)[0])
    if not is_repo or (file and not file.lower().endswith(".gguf")):
        raise UsageError(
            f"{shorten(without_password(text), 100)!r} is not the page of a model repo or of a GGUF",
            _ADDRESS_FORMS,
        )
    return f"{repo}{at}:{file}" if file else f"{repo}{at}"


def parse_repo_file(text: str) -> str | None:
    """Return `org/name:file.gguf` for `org/name/file.gguf`, which may be nested deeper; None for any other form."""
    parts = text.split("/")
    if len(parts) < 3 or not all(parts) or parts[0].lower() in _RESERVED_NAMES or ":" in text:
        return None
    if not text.lower().endswith(".gguf"):
        return None
    return f"{'/'.join(parts[:2])}:{'/'.join(parts[2:])}"


def _without_host(text: str) -> str | None:
    endpoint = (os.environ.get("HF_ENDPOINT") or "").strip().rstrip("/")
    if endpoint and text.lower().startswith(f"{endpoint.lower()}/"):
        return text[len(endpoint) + 1 :]
    if match := _HOST.match(f"{text}/"):
        return text[match.end() :]
    if _SCHEME.match(text) and re.split(r"[?#]", text)[0].lower().endswith(".gguf"):
        raise UsageError(
            f"{shorten(without_password(text), 100)!r} is the URL of a file, but not of the Hub",
            "download it, and give its path",
        )
    return None


def own_models() -> dict[str, Any]:
    """Return the module `options` of each engine with its own models: its `SCHEMES` (forms of MODEL, by the text
    before the colon), `NOUN`, `CONFIG`, and what it `TAKES` of the options of llama.cpp, those of the `SHARED` fields.
    """
    names = plugin_names("ggbench.engines", "options")
    return {name: load_plugin("ggbench.engines", name, "options", "engine") for name in names}


def engine_of_scheme(scheme: str) -> str | None:
    """Return the engine whose models start with this scheme; None if there is none."""
    return next((name for name, options in own_models().items() if scheme in options.SCHEMES), None)
