"""Short names of models: the shortest that distinguish the files at hand.

A table has a column for the model and one for the quant, which together identify a row. A file given by its path is
named without the quant, so the quants in a folder are one model.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from ggbench.engines.contract import EngineConfig
from ggbench.fields import config_options
from ggbench.models.subject import Subject, is_path, long_name, model_name
from ggbench.show.words import say
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.runs.run import Run


_NAMED_MODELS = 3

_NOISE = re.compile(
    r"\b(?:NVIDIA|GeForce|AMD|Intel(?:\(R\))?|Apple) |\((?:R|TM)\)|(?: \d+-Core)? Processor\b| CPU\b| Graphics\b"
)


def short_device(name: str) -> str:
    """Return `RTX 3060` for `NVIDIA GeForce RTX 3060`, `Xeon 6248R` for `Intel(R) Xeon(R) 6248R CPU @ 3.00GHz`."""
    short = _NOISE.sub("", sanitize(name))
    chip = short.partition(" @ ")[0]
    return chip if any(map(str.isdigit, chip)) else short  # a virtual machine's CPU may have only a clock


def quant_name(subject: Subject) -> str:
    return f"{model_name(subject)} {sanitize(subject.quant)}"


def model_names(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """Return the shortest name of each model that, with the quant, distinguishes all files. Printable.

    Models with equal names all get longer ones: the path, or the file after the model.
    """
    names = [model_name(subject) for subject in subjects]
    found = list(names)
    for name in dict.fromkeys(names):
        indices = [index for index, other in enumerate(names) if other == name]
        if not _are_unambiguous([subjects[index] for index in indices]):
            for index in indices:
                found[index] = long_name(subjects[index])
    return tuple(found)


def quant_names(subjects: Sequence[Subject]) -> tuple[str, ...]:
    return tuple(
        f"{model} {sanitize(subject.quant)}"
        for model, subject in zip(model_names(subjects), subjects, strict=True)
    )


def run_name(run: Run) -> str:
    """Return `smollm2 q4_1`, with the engine unless it is ggbench's own llama.cpp: `smollm2 q4_1, llama-server`."""
    engine = sanitize(run.setup.engine_option.partition("=")[0])
    return ", ".join(filter(None, (quant_name(run.subject), engine)))


def kv_name(quant: str, type_k: str = "f16", type_v: str = "f16") -> str:
    """Return a quant, with its KV cache types unless both are f16: `q4_k_m, KV q8_0/q4_0`."""
    if type_k == type_v == "f16":
        return quant
    return f"{quant}, KV {type_k if type_k == type_v else f'{type_k}/{type_v}'}"


def distinct_by_kv(names: Sequence[str], setups: Sequence[EngineConfig]) -> tuple[str, ...]:
    """Return the names, with the KV cache types if a quant occurs with more than one."""
    types = [setup.cache_types or () for setup in setups]
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for name, pair in zip(names, types, strict=True):
        kinds.setdefault(name, set()).add(pair)
    return tuple(
        kv_name(name, *pair) if len(kinds[name]) > 1 else name for name, pair in zip(names, types, strict=True)
    )


def distinct_by_engine(names: Sequence[str], setups: Sequence[EngineConfig]) -> tuple[str, ...]:
    """Return the names, with the engine as `--engine` takes it if there are several. Printable."""
    engines = [sanitize(setup.engine_option or setup.engine) for setup in setups]
    is_one = len(set(engines)) < 2
    return tuple(name if is_one else f"{name}, {engine}" for name, engine in zip(names, engines, strict=True))


def engine_names(setups: Sequence[EngineConfig]) -> tuple[str, ...]:
    """Return what distinguishes how each is run: `/b1/llama-server`, `llama --flash-attn off`."""
    parts = [_engine_parts(setup) for setup in setups]
    common = set.intersection(*({*options} for _, *options in parts))
    programs = {PurePath(program) for program, *_ in parts}
    are_distinct = len({each.name for each in programs}) == len(programs)
    names = []
    for program, *own in parts:
        shown = PurePath(program).name if are_distinct else program
        names.append(sanitize(" ".join([shown, *(each for each in own if each not in common)])))
    return tuple(names)


def _engine_parts(setup: EngineConfig) -> list[str]:
    """Return the program and each of its options with its value."""
    name, _, command = setup.engine_option.partition("=")
    parts: list[str] = []
    for word in (*(shlex.split(command) or [name or setup.engine]), *config_options(setup.as_asked())):
        if (word.startswith("-") and not word[1:2].isdigit()) or not parts:
            parts.append(word)
        else:
            parts[-1] += f" {word}"
    return [part for part in parts if not part.startswith("--engine ")]


def twin_notes(subjects: Iterable[Subject]) -> list[str]:
    return [say("run.twin")] if any(subject.source == "twin" for subject in subjects) else []


def row_labels(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """Return labels of rows below a table: only the quant if the model is the same. Printable."""
    is_one = len(set(model_names(subjects))) == 1
    return tuple(sanitize(subject.quant) for subject in subjects) if is_one else quant_names(subjects)


def models_title(subjects: Sequence[Subject]) -> str:
    models = list(dict.fromkeys(model_names(subjects)))
    return ", ".join(models) if len(models) <= _NAMED_MODELS else f"{len(models)} models"


def unambiguous_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return `short_names`, adding the run's number to duplicates. Printable."""
    names = short_names(runs)
    return tuple(
        name if run_id is None or names.count(name) == 1 else f"{name} (run {run_id})"
        for name, run_id in zip(names, (run.run_id for run in runs), strict=True)
    )


def column_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return `unambiguous_names`, with engines in place of numbers for runs of one quant by different engines."""
    names, short = list(unambiguous_names(runs)), short_names(runs)
    engines = engine_names([run.setup for run in runs])
    for index, name in enumerate(short):
        same = [engine for engine, other in zip(engines, short, strict=True) if other == name]
        if len(set(same)) == len(same) > 1:
            names[index] = engines[index] if len(same) == len(short) else f"{name}, {engines[index]}"
    return tuple(names)


def short_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the shortest form that distinguishes all files: quant, model or both. Printable.

    Only the quant if the model is the same everywhere, so that every model is named.
    """
    subjects = [run.subject for run in runs]
    models, names = model_names(subjects), quant_names(subjects)
    quants = tuple(sanitize(subject.quant) for subject in subjects)
    if len(set(models)) == 1 and len(set(quants)) > 1:
        names = quants
    elif len(set(quants)) == 1 and len(set(models)) > 1:
        names = models
    return names


def quant_colors(names: Sequence[str]) -> tuple[int, ...]:
    """Return a colour index for each run: one per name, or one per run if all names are equal."""
    distinct = list(dict.fromkeys(names))
    return tuple(map(distinct.index, names)) if len(distinct) > 1 else tuple(range(len(names)))


def _are_unambiguous(subjects: Sequence[Subject]) -> bool:
    """Return whether no two files have the same quant, and all are of one model."""
    files: dict[str, str] = {}
    for subject in subjects:
        file = subject.file if is_path(subject) else PurePath(subject.file).name
        if file and files.setdefault(subject.quant, file) != file:
            return False
    return not any(subjects[0].has_other_shape(subject) for subject in subjects)
