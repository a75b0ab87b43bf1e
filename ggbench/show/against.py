"""A run's results next to the nearest published rows, naming every difference in their conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ggbench.models.published import PublishedRow, load_published
from ggbench.models.published.selection import LLAMA_CPP, NearRow, OwnSpeed, nearest_published
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.answer import Facts, Part, Table
from ggbench.show.figure import Figure, member
from ggbench.show.names import quant_name
from ggbench.show.published import METRIC_FIGURES
from ggbench.show.run_figures import FIGURES
from ggbench.units import format_count

_NEAREST = 4
_SYSTEMS = {"llama-server": LLAMA_CPP, "llama-cpp-python": LLAMA_CPP, "vLLM": "vllm"}
"""The published name of each server program; a server's version string starts with the program's name."""


class AgainstRow(Record):
    """A run's own figures, or those of a published row, as printed, by the names of published figures."""

    name: str
    quant: str
    texts: Mapping[str, str]


_PRIORITIES = {
    "w_tokens_per_ms": 0, "b_ms": 0, "tok_s": 0, "prefill_ms": 1, "throughput_tok_s": 2, "memory_gb": 3,
    "perplexity": 0, "kld": 0, "bpw": 4,
}  # fmt: skip


def _figure(key: str) -> Figure[AgainstRow]:
    printed = METRIC_FIGURES[key]
    return Figure(
        key, printed.header, lambda row: row.texts.get(key), unit=printed.unit, priority=_PRIORITIES[key]
    )


_FIGURES = (
    member("name", ""),
    member("quant", "quant"),
    *map(_figure, _PRIORITIES),
)


class Beside(Record):
    """A run's own figures beside the nearest published rows."""

    title: str
    quant: str
    own: Mapping[str, str]
    """Texts as printed, by the names of published figures."""
    near: tuple[NearRow, ...]
    note: str
    """How the run was measured."""
    name: Callable[[PublishedRow], str] = lambda row: row.system

    def parts(self) -> list[Part]:
        """Return a table of both, with every difference below; nothing without a row."""
        if not self.near:
            return []
        rows = [AgainstRow("yours", self.quant, self.own)]
        for each in self.near:
            texts = {key: figure.printed for key, figure in each.row.figures.items() if key in self.own}
            rows.append(AgainstRow(self.name(each.row), each.row.quant or UNKNOWN, texts))
        return [Table(_FIGURES, rows, self.title), Facts([("yours", self.note), *_differences(self)])]


def _differences(beside: Beside) -> list[tuple[str, str]]:
    """Return the differences shared by all rows, then each row's own, how it was measured, and its source."""
    near = beside.near
    shared = [text for text in near[0].differences if all(text in each.differences for each in near)]
    facts = [("all published rows", "; ".join(shared))]
    for each in near:
        row, own = each.row, [text for text in each.differences if text not in shared]
        stated = filter(None, [*own, row.setting, row.remark, f"{row.source} {row.table}"])
        facts.append((f"{beside.name(row)} {row.quant or UNKNOWN}", "; ".join(stated)))
    return facts


def speed_beside(run: Run) -> Beside:
    """Return the run's speed beside the nearest published ones of the same model."""
    n_prompt, n_gen = _timed_lengths(run)
    own = own_speed(run, n_prompt, n_gen)
    keys = ("w_tokens_per_ms", "b_ms", "tok_s", "prefill_ms", "bpw")
    unknown = {"throughput_tok_s": UNKNOWN, "memory_gb": UNKNOWN}
    note = device_of(run) or "unknown device"
    if n_gen is not None:
        note += f"; input {format_count(n_prompt)}, generated {format_count(n_gen)}"
    return Beside(
        f"{quant_name(run.subject)} against published rows",
        run.subject.quant,
        {key: FIGURES[key].text(run) for key in keys} | unknown,
        () if own is None else nearest_published(load_published(), own, _NEAREST),
        note,
    )


def _timed_lengths(run: Run) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the decode that were timed; of prompts alone, the longest."""
    decode = run.decode
    if decode is not None and decode.n_gen:
        return decode.n_prompt, decode.n_gen
    lengths = [speed.n_prompt for speed in run.prefills if not speed.n_depth]
    return max(lengths, default=decode.n_prompt if decode else None), None


def own_speed(run: Run, n_prompt: int | None, n_gen: int | None, batch_size: int = 1) -> OwnSpeed | None:
    """Return how a run was measured, in the terms of published rows; None for an unpublished model."""
    model = published_model(run.subject)
    if model is None:
        return None
    server = run.environment.server if run.environment else ""
    system = next((system for program, system in _SYSTEMS.items() if server.startswith(program)), server)
    quant = run.subject.quant
    return OwnSpeed(model, quant, system or LLAMA_CPP, device_of(run), n_prompt, n_gen, batch_size)


def published_model(subject: Subject) -> str | None:
    """Return the published model of the same name, by MODEL or by the file's name; None if there is none.

    `twin:qwen1.5-7b`, `Qwen/Qwen1.5-7B-Chat-GGUF` and `qwen1_5-7b-chat-q4_k_m.gguf` are all `qwen1.5-7b`.
    """
    models = sorted({published.model for published in load_published()}, key=len, reverse=True)
    for text in (subject.model, subject.file):
        spelt = text.lower().replace("_", ".")
        for name in models:
            if re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9])", spelt):
                return name
    return None


def device_of(run: Run) -> str | None:
    """Return the main GPU if layers were on one, else the CPU; None if unknown, as on a server."""
    environment, setup = run.environment, run.setup
    if environment is None or not run.memory.buffers:
        return None
    if run.memory.weights_on_gpu and environment.gpus:
        main = setup.main_gpu or 0
        return environment.gpus[main if main < len(environment.gpus) else 0].name
    return environment.cpu
