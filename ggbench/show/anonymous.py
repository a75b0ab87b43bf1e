"""Hide private data: folders outside `~`, server names, serial numbers of GPUs."""

from __future__ import annotations

import functools
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ggbench.gguf_file.quants import name_without_quant
from ggbench.plugins import plugin_names
from ggbench.runs.experiment import experiment_of
from ggbench.show.listed_runs import SavedRun

_Record = TypeVar("_Record")

_IDENTIFYING = frozenset(("uuid", "pci_bus_id"))
_SIGNS = ("/", "\\", *(f'"{name}"' for name in _IDENTIFYING))
_QUOTED_PATH = re.compile(
    r"'((?:~|\.{1,2})?/[^']+|[A-Za-z]:\\[^']+)'|\"((?:~|\.{1,2})?/[^\"]+|[A-Za-z]:\\[^\"]+)\""
)
_ANY_PATH = re.compile(r"(?<![\w.:/~\\-])(?:(?:~|\.{1,2})?/|[A-Za-z]:\\)[^\s'\"(),;]+")
_SERVER = re.compile(r"\b(https?://)(?!(?:[\w-]+\.)*(?:huggingface\.co|github\.com)\b)[^\s/'\"]+")
_HOMES = re.compile(r"^(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\]+$|^(?:/root|~)$")


def anonymous_run(one: SavedRun) -> SavedRun:
    """Return a run with its samples, but without folders, server names and serial numbers in its records."""
    run = one.run
    subject = _anonymous_record(run.head.subject)
    if subject.model != run.head.subject.model:  # the model was named by its folder
        subject = replace(subject, model=name_without_quant(subject.file or "") or subject.model)
    head = replace(
        run.head,
        subject=subject,
        setup=_anonymous_record(run.setup),
        settings=_anonymous_record(run.head.settings),
        environment=_anonymous_record(run.environment),
        command=anonymous(run.head.command),
    )
    bare = replace(
        run,
        head=head,
        reason=anonymous(run.reason),
        memory=_anonymous_record(run.memory),
        gpu_use=_anonymous_record(run.gpu_use),
        result=_anonymous_record(run.result),
    )
    return replace(one, run=bare, observations=[*map(_anonymous_record, one.observations)])


def _anonymous_record(record: _Record) -> _Record:
    return msgspec.convert(anonymous(msgspec.to_builtins(record)), type(record))


def anonymous(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON without folders, server names and serial numbers of GPUs; files keep their names."""
    if isinstance(value, str):
        return _without_paths(value)
    if isinstance(value, list | tuple):
        return [anonymous(each) for each in value]
    if isinstance(value, dict):
        found = {name: None if name in _IDENTIFYING else each for name, each in value.items()}
        kept = {name: each for name, each in found.items() if name in _bytes_fields() and isinstance(each, str)}
        return {name: anonymous(each) for name, each in found.items()} | kept
    return value


def may_identify(json_text: str) -> bool:
    """Return whether JSON may have something that `anonymous` leaves out: false for most readings of a machine."""
    return any(sign in json_text for sign in _SIGNS)


@functools.cache
def _bytes_fields() -> frozenset[str]:
    """Return the fields of observations that are base64 in JSON, which contains slashes."""
    kinds = plugin_names("ggbench.experiments", "measure")
    observed = (each for kind in kinds for each in experiment_of(kind).observed)
    return frozenset(
        field.name for each in observed for field in msgspec.structs.fields(each) if field.type is bytes
    )


def _without_paths(text: str) -> str:
    if "/" not in text and "\\" not in text:
        return text
    if text.startswith(("/", "~/", "../", "./")):  # a field that is a path, which may contain blanks
        return _name(text)
    text = _SERVER.sub(r"\1server", text)
    text = _QUOTED_PATH.sub(lambda found: f"'{_name(found[1] or found[2])}'", text)
    return _ANY_PATH.sub(lambda found: _name(found[0]), text)


def _name(path: str) -> str:
    """Return the last part of a path; `~` for a home folder, whose name is the user's."""
    stripped = path.rstrip("/\\")
    if _HOMES.match(stripped) or not stripped:
        return "~" if stripped else "/"
    return PureWindowsPath(stripped).name if "\\" in stripped else PurePosixPath(stripped).name
