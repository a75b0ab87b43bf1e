"""A session: how long it takes, and the wait of each turn against the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ggbench.expect.sessions import known_sessions
from ggbench.experiments.session.record import SessionResult, SessionSettings, TurnTimed, result_of
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.charts import Curve, LineChart, PlottedRun
from ggbench.show.figure import Figure, facts_of, member, reader
from ggbench.show.machine import serving_facts
from ggbench.show.metric import Metric, memory_metric
from ggbench.show.names import row_labels, run_name, twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import compare_command, run_answer, several_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import rows_of, unsteady_mark
from ggbench.show.words import say
from ggbench.units import counted, format_duration, format_fixed, with_unit

_MOST_ROWS = 8
"""Turns in front, of more one of several."""


def _found(run: Run) -> SessionResult | None:
    return result_of(run) if result_of(run).turns else None


def _seconds(value: float) -> str:
    """Return `0.04`, `1.2`, `312`."""
    return format_fixed(value, 2 if value < 0.095 else int(value < 99.5))


def _figure(key: str, header: str, member: str, meaning: str, **more: Any) -> Figure[Run]:  # noqa: ANN401 - members
    return Figure(key, header, reader(member, _found), meaning=meaning, better="less", **more)


_wait = partial(_figure, form=_seconds, unit="s", mark=unsteady_mark)
_TIME = _figure(
    "session_s", "session", "elapsed_s", "Seconds of all turns: waits and answers.",
    form=format_duration, mark=unsteady_mark,
)  # fmt: skip
_LAST = _wait("wait_last_s", "last wait", "last_wait_s", "Time to the first token of the last turn.")
_P50 = _wait("wait_p50_s", "p50 wait", "p50_s", "Wait that half of the turns do not exceed.", priority=1)
_P95 = _wait("wait_p95_s", "p95 wait", "p95_s", "Wait that 95 % of the turns do not exceed.", priority=1)
_FIGURES = (
    _TIME, _LAST, _P50, _P95,
    _figure(
        "n_reread", "read again", "n_reread", "Tokens read again although the turn before left them in the cache.",
        unit="tokens", priority=2,
    ),
    _figure("session_j", "energy", "joules", "Energy of the GPUs over all turns.", unit="J", priority=3),
)  # fmt: skip


class _Row(Record):
    number: int
    turn: TurnTimed

    @property
    def wait_s(self) -> float:
        return self.turn.wait_ns / 1e9


_TURNS = (
    member("number", "turn", str),
    member("n_prompt", "transcript", path="turn.n_prompt", unit="tokens"),
    member("n_read", "read", path="turn.n_read", unit="tokens"),
    member("wait_s", "wait", _seconds, unit="s"),
    member("n_gen", "answer", path="turn.n_gen", unit="tokens", priority=1),
    member("tok_s", "speed", path="turn.tok_s", unit="tok/s"),
)


class SessionPresenter(Presenter):
    kind = "session"
    documents = RunDocuments("session", _FIGURES, "The turns of a session.")
    has_line = False
    has_samples = False
    plotted = (TurnTimed,)
    no_answer = "no turn was measured"
    figures = _FIGURES
    headline = _TIME

    def answer(self, run: Run) -> str:
        found, settings = result_of(run), run.head.settings
        if not found.turns or not isinstance(settings, SessionSettings):
            return ""
        name = f"{settings.name} session" if settings.workload in known_sessions() else "session"
        times = {each.key: each.text(run) for each in (_TIME, _LAST)}
        key = "takes" if run.is_complete else "took"
        return say(f"session.{key}", name=name, done=len(found.turns), turns=len(settings.turns), **times)

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        curves = []
        for run in runs:
            turns = [each for each in run.observations if isinstance(each, TurnTimed)]
            x = np.array([turn.n_prompt for turn in turns], np.int64)
            y = np.array([turn.wait_ns / 1e9 for turn in turns])
            curves.append(Curve(run.name, x, y, dimmed=run.dimmed, has_bars=True))
        ends = [run.settings.n_ctx_needed for run in runs if isinstance(run.settings, SessionSettings)]
        end = max(ends, default=None)
        return (
            LineChart("wait", "wait of a turn", "s", "transcript", "tokens", tuple(curves), end, y_low=0.0),
        )

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return *_METRICS, memory_metric(runs)

    def details(self, run: Run) -> Answer:
        found, text = result_of(run), self.answer(run) or self.ending(run)
        command = f"ggbench results show {run.run_id} --plot" if run.run_id and found.turns else ""
        rows = [_Row(*each) for each in enumerate(found.turns, 1)]
        notes = [*_reread(rows), *twin_notes([run.subject])]
        workload = getattr(run.head.settings, "workload", "")
        about = [("workload", workload), *facts_of((_P50, _P95), run), *serving_facts(run)]
        why: list[Part] = [Facts(about), Table(_TURNS, rows, "Turns")]
        named = f"{run_name(run)}: {text}."
        return run_answer(
            run, Answer(named, command, [Table(_TURNS, rows[:: len(rows) // _MOST_ROWS + 1])], notes, why)
        )

    def table(self, runs: Sequence[Run]) -> Answer:
        answer = Answer("", compare_command(runs), [Table((*rows_of(runs), *_FIGURES), runs)])
        return several_answer(runs, row_labels([run.subject for run in runs]), answer)


def _measured_turns(run: Run) -> object:
    """Return the turns of a complete run; None for another."""
    return getattr(run.head.settings, "turns", None) if run.is_complete else None


def _metric(figure: Figure[Run], topic: str) -> Metric:
    def difference(one: float, other: float) -> str:
        mine, its = (with_unit(figure.form(each), figure.unit) for each in (one, other))
        return f"{mine} instead of {its}"

    return Metric(
        figure,
        topic,
        win="sooner",
        is_timed=True,
        difference=difference,
        basis=_measured_turns,
        other_basis="different turns",
    )


_METRICS = (_metric(_TIME, "session time"), _metric(_LAST, "last wait"))


def _reread(rows: Sequence[_Row]) -> list[str]:
    """Return how much was read again and how often, a line for each cause."""
    found = []
    for cause in dict.fromkeys(row.turn.cause for row in rows if row.turn.cause):
        lost = [row for row in rows if row.turn.cause == cause]
        tokens = counted(sum(row.turn.n_reread for row in lost), "token")
        first, turns = lost[0].number, counted(len(lost), "turn")
        found.append(say(f"session.{cause}", tokens=tokens, turns=turns, first=first))
    return found


PRESENTER = SessionPresenter()
