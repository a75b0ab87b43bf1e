"""Show a search for the largest context: the n_ctx that works, and the probes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.experiments.maxctx.record import (
    MaxctxResult,
    Probe,
    context_of,
    outcome_text,
)
from ggbench.machine.readings import name_processes
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.figure import Figure, Further, facts_of, member, value_text
from ggbench.show.metric import Metric, memory_metric
from ggbench.show.names import row_labels, run_name
from ggbench.show.presenter import Presenter
from ggbench.show.quants import memory_parts
from ggbench.show.run_answer import run_answer, several_answer, shared
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import FIGURES, figures, rows_of
from ggbench.show.server_line import server_line
from ggbench.show.text import slots_text
from ggbench.show.words import say
from ggbench.units import counted, format_bytes, format_count, format_number


def _found(
    key: str, header: str, path: str = "", form: Callable[[Any], str] = value_text, **further: Unpack[Further]
) -> Figure[Run]:
    return member(key, header, form, f"result.{path or key}", **further)


_FIGURES = (
    _found(
        "planned_n_ctx", "planned", "plan.planned_n_ctx", meaning="The max n_ctx of ggbench plan.", priority=1
    ),
    _found("max_n_ctx", "works", meaning="The largest n_ctx that works."),
    _found(
        "first_fail_n_ctx", "fails", meaning="The smallest n_ctx that fails; null if the ceiling was reached."
    ),
    _found("verified_by_decode", "proven", meaning="Whether tokens were decoded at the end of max_n_ctx."),
)
_SEARCH = (
    _found("theory_n_ctx", "by weights and KV cache", "plan.theory_n_ctx"),
    _found("memory_bytes", "memory", "plan.memory_bytes", form=format_bytes),
    _found("memory_source", "", "plan.memory_source"),
    _found("reserve_bytes", "left free", "plan.reserve_bytes", form=format_bytes),
    _found("reserve_source", "", "plan.reserve_source"),
    _found("budget_bytes", "for model and context", "plan.budget_bytes", form=format_bytes),
    member(
        "draft_bytes", "draft", format_bytes, "memory.draft_bytes", meaning="What drafts, over all devices."
    ),
)
_DOCUMENTED = (
    *_FIGURES,
    _found("n_ctx_slot", "of a slot", meaning="Tokens of max_n_ctx that one slot can have."),
    _found("n_allocations", "allocations", meaning="Number of contexts allocated."),
    _found("seconds", "time", meaning="Time of all probes.", unit="s"),
    *figures("kv_bytes compute_bytes peak_bytes other_bytes"),
    _SEARCH[-1],
    Figure("llama_server", "", lambda run: _command(run) or None, meaning="The command with max_n_ctx."),
)  # fmt: skip


class MaxctxPresenter(Presenter):
    kind = "maxctx"
    documents = RunDocuments(
        "maxctx", _DOCUMENTED, "A search for the largest context.", several_as="maxctx.all"
    )
    has_samples = False
    no_answer = "no n_ctx works"
    headline = replace(FIGURES["max_n_ctx"], header="n_ctx")

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return memory_metric(runs), _MAX_N_CTX

    def answer(self, run: Run) -> str:
        """Return `n_ctx 8,192 works: decoded at its end. 8,448 does not load: 2.9 MiB short.`; empty if none works."""
        found, fail = context_of(run), context_of(run).first_fail_n_ctx
        if found.max_n_ctx is None:
            return ""
        key = "maxctx.works" if found.verified_by_decode else "maxctx.loads"
        slots = slots_text(run.setup, found.max_n_ctx)
        said = [say(key, n_ctx=found.max_n_ctx, slots=slots)]
        tried = [probe for probe in found.probes if probe.n_ctx == fail and not probe.is_dry]
        if tried:
            outcome = outcome_text(tried[-1], run.setup.program)
            said.append(say("maxctx.fails", n_ctx=fail, outcome=outcome))
        return " ".join(said)

    def details(self, run: Run) -> Answer:
        found = context_of(run)
        why: list[Part] = [
            _probes(found, run.setup.program),
            Facts(facts_of(_SEARCH, run), "Search"),
        ]
        why += memory_parts(run.memory)
        parts = filter(None, ["; ".join(_effort(run, found))])
        notes = list(found.warnings)
        if found.plan.gpu_processes:
            notes.append(say("maxctx.others", names=name_processes(found.plan.gpu_processes)))
        answer = Answer(f"{run_name(run)}: {self.ending(run)}", _command(run), [*parts], notes, why)
        return run_answer(run, answer)

    def table(self, runs: Sequence[Run]) -> Answer:
        names = row_labels([run.subject for run in runs])
        text, command = say("maxctx.none"), ""
        working = [run for run in runs if context_of(run).max_n_ctx is not None]
        if working:
            best = max(working, key=lambda run: context_of(run).max_n_ctx or 0)
            quant, command = names[runs.index(best)], _command(best)
            text = say("maxctx.longest", quant=quant, n_ctx=context_of(best).max_n_ctx)
        notes = shared(names, ["; ".join(context_of(run).warnings) for run in runs])
        table = Table((*rows_of(runs), *_FIGURES), runs)
        return several_answer(runs, names, Answer(text, command, [table], notes))


def _command(run: Run) -> str:
    """Return the llama-server command with the largest context; empty without one, or with a draft that is no file."""
    n_ctx, more = context_of(run).max_n_ctx, list[str]()
    if n_ctx is None or not isinstance(run.setup, LlamaConfig):
        return ""
    draft, words = list[str](), shlex.split(run.head.command)
    if "--draft" in words:
        draft = ["-md", words[words.index("--draft") + 1]]
        if not draft[1].endswith(".gguf"):
            return ""
    limit_bytes = run.setup.memory_limit_bytes
    if limit_bytes is not None and limit_bytes < CACHE_RAM_BYTES and not run.memory.weights_on_gpu:
        more = ["--cache-ram", "0"]
    return server_line(run, replace(run.setup, n_ctx=n_ctx), *more, draft=draft)


def _effort(run: Run, found: MaxctxResult) -> list[str]:
    """Return what was planned, the memory at its peak, and how long it took."""
    said = []
    if found.plan.planned_n_ctx is not None:
        said.append(say("maxctx.planned", n_ctx=found.plan.planned_n_ctx))
    if run.memory.peak_bytes is not None and found.plan.memory_bytes is not None:
        peak, limit = format_bytes(run.memory.peak_bytes), format_bytes(found.plan.memory_bytes)
        said.append(say("maxctx.peak", peak=peak, limit=limit))
    if found.n_allocations:
        allocations = counted(found.n_allocations, "allocation")
        said.append(say("maxctx.tried", allocations=allocations, seconds=format_number(found.seconds, 2)))
    return said


def _probes(found: MaxctxResult, program: str) -> Table[Probe]:
    columns = (
        member("n_ctx", "n_ctx"),
        member("seconds", "time", partial(format_number, digits=2), unit="s"),
        member("kv_bytes", "KV", format_bytes, priority=1),
        member("compute_bytes", "compute", format_bytes, priority=1),
        Figure[Probe]("outcome", "outcome", lambda probe: outcome_text(probe, program)),
    )
    return Table(columns, [probe for probe in found.probes if not probe.is_dry], "Tried")


_MAX_N_CTX = Metric(
    FIGURES["max_n_ctx"],
    "max n_ctx",
    win="longer",
    difference=lambda one, other: format_count(round(one - other)),
    unfit=lambda run: "" if run.max_n_ctx_verified else "not proven",
)


PRESENTER = MaxctxPresenter()
