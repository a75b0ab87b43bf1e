"""Short names for tables: a model given as a path by the name of its file or folder, compared runs by what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from ggbench.plain import plain
from ggbench.records.subject import Subject
from ggbench.records.summary import QuantSummary

_PATH_STARTS = ("/", "./", "../", "~")
_NAMELESS = {"", ".", "..", "~"}
"""Last parts of a path that say nothing about what is there."""
_FOLDERS_ABOVE = 2
"""A folder's own files and those of its direct subfolders are its models."""


def model_name(subject: Subject) -> str:
    """The model as it was named; of a path the name of the file or folder. Printable."""
    if not _is_path(subject):
        return plain(subject.model)
    name = PurePath(subject.model).name
    return plain(name if name not in _NAMELESS else PurePath(subject.file).parent.name or subject.model)


def file_name(subject: Subject) -> str:
    """The file's name, of several shards the first one's; empty where there is no file. Printable."""
    return plain(PurePath(subject.file).name)


def quant_name(subject: Subject) -> str:
    """`qwen1.5-7b q4_k_m`. Printable."""
    return f"{model_name(subject)} {plain(subject.quant)}"


def unambiguous_names(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """The shortest form that tells all of them apart: quant, model, both, or both with the run's number. Printable."""
    forms: tuple[Callable[[QuantSummary], str], ...] = (
        lambda summary: plain(summary.subject.quant),
        lambda summary: model_name(summary.subject),
        lambda summary: quant_name(summary.subject),
        _numbered,
    )
    names: tuple[str, ...] = ()
    for form in forms if len(summaries) > 1 else forms[2:3]:
        names = tuple(map(form, summaries))
        if len(set(names)) == len(names):
            break
    return names


def _numbered(summary: QuantSummary) -> str:
    run_id = summary.run.run_id
    return quant_name(summary.subject) + ("" if run_id is None else f" (run {run_id})")


def _is_path(subject: Subject) -> bool:
    """Whether MODEL was a path: by its looks, or because the file lies there."""
    model = subject.model
    if model.startswith(_PATH_STARTS) or model in _NAMELESS or model.lower().endswith(".gguf"):
        return True
    if subject.source == "hub" or ":" in model or "/" not in model:
        return False
    parts, file = PurePath(model).parts, PurePath(subject.file)
    return any(folder.parts[-len(parts) :] == parts for folder in (file, *file.parents[:_FOLDERS_ABOVE]))
