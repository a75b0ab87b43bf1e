"""Short names for everything that shows a model: the shortest that distinguishes the files at hand.

A table has a column for the model and one for the quant, and the two together name a row. A file opened by its path is
called by its name without the quant, so that the quants of one model in a folder are one model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from ggbench.engines.contract import EngineConfig
from ggbench.gguf_file import quants
from ggbench.gguf_file.quants import name_without_quant
from ggbench.models.subject import Subject
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.runs.summary import QuantSummary

_PATH_STARTS = ("/", "./", "../", "~")
_NAMELESS = {"", ".", "..", "~"}
"""Last parts of a path that say nothing about what is there."""
_FOLDERS_ABOVE = 2
"""A folder's own files and those of its direct subfolders are its models."""

_NAMED_MODELS = 3
"""A title names at most this many."""
_MOST_FOLDERS = 3
"""In front of a file's name; what is still ambiguous has its whole path."""


def model_name(subject: Subject) -> str:
    """The model as it was named; of a path the file's name without its quant, and whole if it has none. Printable."""
    if not _is_path(subject):
        return sanitize(subject.model)
    return sanitize(_name_in_folder(PurePath(subject.file or subject.model)) or subject.model)


def file_name(subject: Subject) -> str:
    """The file's name, of several shards the first one's; empty where there is no file. Printable."""
    return sanitize(PurePath(subject.file).name)


def quant_name(subject: Subject) -> str:
    """`qwen1.5-7b q4_k_m`. Printable."""
    return f"{model_name(subject)} {sanitize(subject.quant)}"


def model_names(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """The model of each by the shortest name that distinguishes, together with the quant, all files. Printable.

    Those of one name get a longer one together: with folders in front, or the file's whole name.
    """
    names = [model_name(subject) for subject in subjects]
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(name, []).append(index)
    for indices in groups.values():
        group = [subjects[index] for index in indices]
        for longer in zip(*map(_longer_names, group), strict=True):
            if _are_unambiguous([names[index] for index in indices], group):
                break
            for index, name in zip(indices, longer, strict=True):
                names[index] = name
    return tuple(names)


def quant_names(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """Model and quant of each, as `model_names` has them. Printable."""
    return tuple(
        f"{model} {sanitize(subject.quant)}" for model, subject in zip(model_names(subjects), subjects, strict=True)
    )


def kv_name(quant: str, type_k: str = "f16", type_v: str = "f16") -> str:
    """Name a quant, and its KV cache where that is not f16: `q4_k_m, KV q8_0/q4_0`."""
    if type_k == type_v == "f16":
        return quant
    return f"{quant}, KV {type_k if type_k == type_v else f'{type_k}/{type_v}'}"


def distinct_by_kv(names: Sequence[str], setups: Sequence[EngineConfig]) -> tuple[str, ...]:
    """Return the names, those of one quant that is there with several types of the KV cache as `kv_name` has them."""
    types = [setup.cache_types or () for setup in setups]
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for name, pair in zip(names, types, strict=True):
        kinds.setdefault(name, set()).add(pair)
    return tuple(
        kv_name(name, *pair) if len(kinds[name]) > 1 else name for name, pair in zip(names, types, strict=True)
    )


def row_labels(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """What the rows of a table are called below it: the quant alone where the model is the same. Printable."""
    is_one = len(set(model_names(subjects))) == 1
    return tuple(sanitize(subject.quant) for subject in subjects) if is_one else quant_names(subjects)


def models_title(subjects: Sequence[Subject]) -> str:
    """The models in the title of a table, `qwen1.5-7b` or `4 models`. Printable."""
    models = list(dict.fromkeys(model_names(subjects)))
    return ", ".join(models) if len(models) <= _NAMED_MODELS else f"{len(models)} models"


def unambiguous_names(summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    """The shortest form that distinguishes all of them: quant, model, both, or both with the run's number. Printable.

    The quant alone only where the model is the same, so that no model goes without its name.
    """
    subjects = [summary.subject for summary in summaries]
    models, both = model_names(subjects), quant_names(subjects)
    quants = tuple(sanitize(subject.quant) for subject in subjects)
    if len(summaries) == 1:
        return both
    forms = ((len(set(models)) == 1, quants), (len(set(quants)) == 1, models), (True, both))
    shortest = (form for is_whole, form in forms if is_whole and len(set(form)) == len(form))
    return next(shortest, tuple(map(_numbered, both, summaries)))


def _numbered(name: str, summary: QuantSummary) -> str:
    run_id = summary.run.run_id
    return name + ("" if run_id is None else f" (run {run_id})")


def _are_unambiguous(names: Sequence[str], subjects: Sequence[Subject]) -> bool:
    """Return whether no two files share name and quant, and no two models a name."""
    files: dict[tuple[str, str], str] = {}
    models: dict[str, Subject] = {}
    for name, subject in zip(names, subjects, strict=True):
        file = subject.file if _is_path(subject) else PurePath(subject.file).name
        if file and files.setdefault((name, subject.quant), file) != file:
            return False
        if models.setdefault(name, subject).has_other_shape(subject):
            return False
    return True


def _longer_names(subject: Subject) -> Iterator[str]:
    """Yield longer and longer names, as many for every subject."""
    file, is_path = PurePath(subject.file), _is_path(subject)
    for n_folders in range(1, _MOST_FOLDERS + 1):
        for name, n_above in ((_name_in_folder(file), n_folders), (file.name, n_folders - 1)):
            yield sanitize(_below(file.parent, n_above, name) if is_path else f"{subject.model} {file.name}".rstrip())
    yield sanitize(subject.file if is_path and subject.file else subject.model)


def _below(folder: PurePath, n_folders: int, name: str) -> str:
    """`b/c/name` for two of the folders of `/a/b/c`."""
    parts = [part for part in folder.parts if part != folder.anchor]
    return "/".join((*(parts[-n_folders:] if n_folders else ()), name))


def _name_in_folder(path: PurePath) -> str:
    """`x` of `x-q8_0.gguf`, `x.gguf` of itself; of a file called by its quant alone, and of `.`, the folder's name."""
    name = path.name if path.name not in _NAMELESS else path.parent.name
    short = name_without_quant(name)
    if not short:
        return path.parent.name or name
    has_no_quant = short == quants.model_name(name) and quants.parse_shard_name(name) is None
    return name if has_no_quant else short


def _is_path(subject: Subject) -> bool:
    """Whether MODEL was a path: by its looks, or because the file lies there."""
    model = subject.model
    if model.startswith(_PATH_STARTS) or model in _NAMELESS or model.lower().endswith(".gguf"):
        return True
    if subject.source == "hub" or ":" in model or "/" not in model:
        return False
    parts, file = PurePath(model).parts, PurePath(subject.file)
    return any(folder.parts[-len(parts) :] == parts for folder in (file, *file.parents[:_FOLDERS_ABOVE]))
