"""Find differences between measured runs other than their results, and reasons not to trust or compare results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import msgspec

from ggbench.engines.endings import Outcome
from ggbench.models.subject import Subject, model_name
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN, letter
from ggbench.show.figure import member, value_text
from ggbench.show.metric import RunFigure, vary
from ggbench.show.presenter import own_caveats, own_differences
from ggbench.show.run_figures import CACHE_TYPES, unsteady_note
from ggbench.show.text import on_off
from ggbench.show.words import say
from ggbench.text import in_words, sanitize
from ggbench.units import format_bytes

Column = Sequence[Run]
"""One run, or the mean of several repeats; the first represents them."""


class Difference(Record):
    """A property in which runs differ."""

    topic: str
    """`file`, `configuration`, `environment`, or an experiment's own, such as `text`."""
    name: str
    values: tuple[str, ...]
    """The texts of each run; an em dash if unknown."""

    @property
    def text(self) -> str:
        """`threads: 2 in a and c, 4 in b`."""
        holders: dict[str, list[int]] = {}
        for index, value in enumerate(self.values):
            holders.setdefault(value, []).append(index)
        return f"{self.name}: {', '.join(f'{value} in {letters(who)}' for value, who in holders.items())}"


def differences_of(runs: Sequence[Run]) -> tuple[Difference, ...]:
    """Return the differences, those of one topic together."""
    own = own_differences(run.head.kind for run in runs)
    configuration = (*_CONFIGURATION, *_shared_loads(runs), _LIMIT, *_settings(runs))
    topics = {
        "file": _FILE,
        **own,
        "configuration": configuration,
        "environment": _environment(runs),
    }
    found = [
        Difference(topic, figure.header, tuple(figure.text(run) or UNKNOWN for run in runs))
        for topic, figures in topics.items()
        for figure in figures
    ]
    return tuple(each for each in found if len(set(each.values)) > 1)


def letters(indices: Sequence[int]) -> str:
    """Return the letters of runs as a list in words: `a, b and d`."""
    return in_words([letter(index) for index in indices])


def _shared_loads(runs: Sequence[Run]) -> list[RunFigure]:
    """Return the settings of the load that the engines of all have, by field name, but for those of other figures."""
    others = [run.setup.__struct_fields__ for run in runs]
    shared = [name for name in others[0] if all(name in each for each in others) and name not in _SHOWN]
    return [_fact(name, partial(_of_setup, name)) for name in shared]


def _settings(runs: Sequence[Run]) -> list[RunFigure]:
    """Return the settings of runs of one kind, by field name, that no other figure shows."""
    settings: list[Any] = [run.head.settings for run in runs]
    if len(set(map(type, settings))) > 1 or not isinstance(settings[0], msgspec.Struct):
        return []
    own = own_differences(run.head.kind for run in runs)
    named = {figure.key for figures in ((*_CONFIGURATION,), *own.values()) for figure in figures}
    keys = [name for name in settings[0].__struct_fields__ if name not in named]
    return [_path(key, f"head.settings.{key}", _setting) for key in keys]


def _of_setup(name: str, run: Run) -> str:
    value = getattr(run.setup, name)
    return "default" if value is None else _setting(value)


def _setting(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_setting, value)) or "none"
    if isinstance(value, bool):
        return on_off(value)
    return sanitize(str(getattr(value, "name", value))) or "none"


def _fact(name: str, get: Callable[[Run], str]) -> RunFigure:
    return RunFigure(name, name, get)


def _path(name: str, path: str, form: Callable[[Any], str] = value_text) -> RunFigure:
    return member(name, name, form, path)


def _paths(paths: Mapping[str, str]) -> Iterator[RunFigure]:
    return (_path(name, path) for name, path in paths.items())


_FILE = (
    _fact("model", lambda run: model_name(run.subject)),
    *_paths({"quant": "subject.quant", "source": "subject.source"}),
    _path("size", "subject.file_bytes", format_bytes),
    *_paths({"BPW": "subject.bpw", "path": "subject.file"}),
)
_CONFIGURATION = (
    *_paths({
        "kind": "head.kind", "engine": "setup.engine", "n_ctx": "memory.n_ctx", "n_prompt": "decode.n_prompt",
        "n_gen": "decode.n_gen", "users": "decode.n_seqs", "n_batch": "memory.n_batch", "n_ubatch": "memory.n_ubatch",
    }),
    *CACHE_TYPES,
    _path("flash attention", "memory.flash_attn", on_off),
)  # fmt: skip
_SHOWN = frozenset({"n_ctx", "n_batch", "n_ubatch", "type_k", "type_v", "memory_limit_bytes"})
"""Fields of a setup that other figures show."""
_LIMIT = _path("memory limit", "setup.memory_limit_bytes", format_bytes)
_ENVIRONMENT = (
    *_paths({
        "ggbench": "environment.ggbench", "llama.cpp": "environment.llama_cpp",
        "Transformers": "environment.transformers", "llama-cpp-python": "environment.llama_cpp_python",
        "built with": "environment.build_flags", "Python": "environment.python", "system": "environment.os",
        "processor": "environment.cpu", "cores": "environment.n_cores",
    }),
    _path("backends", "environment.backends", ", ".join),
    _path("RAM", "environment.ram_bytes", format_bytes),
    _path(
        "GPUs", "environment.gpus",
        lambda gpus: " + ".join(f"{gpu.name} {format_bytes(gpu.total_bytes)}" for gpu in gpus) or "none",
    ),
    _path("GPU driver", "environment.gpus", lambda gpus: " + ".join(sorted({gpu.driver or "" for gpu in gpus}))),
)  # fmt: skip


def _environment(runs: Sequence[Run]) -> Sequence[RunFigure]:
    """Return the figures of the machine and the programs, or which run's are unknown."""
    if any(run.environment is None for run in runs):
        return [_fact("environment", lambda run: "" if run.environment is None else "known")]
    return _ENVIRONMENT


def caveats(columns: Sequence[Column]) -> list[str]:
    """Return reasons not to trust numbers, then those that measure different things."""
    runs, lines = [column[0] for column in columns], list(_doubts(columns))
    if any(_are_other_models(*pair) for pair in combinations([run.subject for run in runs], 2)):
        lines.append(say("compare.other_models"))
    lines += own_caveats((run.head.kind for run in runs), runs)
    if vary(lambda run: run.memory.n_ctx, runs):
        lines.append(say("compare.other_n_ctx"))
    return lines


def _doubts(columns: Sequence[Column]) -> Iterator[str]:
    """Yield which runs did not complete, and which were unsteady."""
    for index, (first, *_) in enumerate(columns):
        if first.outcome is not Outcome.COMPLETED:
            yield say("compare.failed", run=letter(index), why=sanitize(first.reason) or first.outcome.text)
    most = [max(column, key=lambda each: (bool(each.unsteady), each.others_share)) for column in columns]
    yield from filter(None, [unsteady_note([*map(letter, range(len(columns)))], most)])


def _are_other_models(one: Subject, other: Subject) -> bool:
    """Compare architecture and shape, or names if a header is missing."""
    differ = one.has_other_shape(other)
    return model_name(one) != model_name(other) if differ is None else differ
