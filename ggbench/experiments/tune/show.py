"""Show a search for settings that beat the defaults."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.experiments.tune.record import TuneCandidate, TuneResult, TuneSettings, result_of
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.figure import Figure, member
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.server_line import server_line
from ggbench.stats.intervals import Estimate
from ggbench.units import format_ratio

_RULE = "The first round, where the best of several is partly lucky, chooses what the second measures again."


def tuned_command(run: Run) -> str:
    """Return the llama-server command with the settings found; empty without a gain."""
    found = result_of(run)
    if not found.has_gain or found.finalist is None:
        return ""
    return server_line(run, replace(found.candidates[found.finalist].setup, n_ctx=run.setup.n_ctx))


def _best(run: Run) -> str | None:
    found = result_of(run)
    return found.options(found.finalist) if found.has_gain and found.finalist is not None else None


def _ratio_text(ratio: Estimate) -> str:
    return format_ratio(ratio.value, ratio.low, ratio.high)


_RATIO = member(
    "ratio",
    "gain",
    _ratio_text,
    "result.ratio",
    unit="times",
    is_estimate=True,
    meaning="Finalist / defaults.",
)
_DOCUMENTED = (
    _RATIO,
    member("has_gain", "", path="result.has_gain", meaning="Whether its interval is above 1."),
    Figure[Run](
        "best", "", lambda run: _best(run), meaning="llama-server's options that gain; null for none.",
    ),
    Figure[Run](
        "llama_server", "", lambda run: tuned_command(run) or None,
        meaning="The command with the settings found; null without a gain.",
    ),
)  # fmt: skip


class TunePresenter(Presenter):
    kind = "tune"
    documents = RunDocuments("tune", _DOCUMENTED, "A search for the settings that beat the defaults.")
    has_line = False
    has_samples = False
    headline = _RATIO

    def answer(self, run: Run) -> str:
        found = result_of(run)
        return found.answer if run.is_complete or found.ratio is not None else ""

    def details(self, run: Run) -> Answer:
        found, settings = result_of(run), run.head.settings
        timed = settings.timed if isinstance(settings, TuneSettings) else ()
        parts = [_candidates_table(found, timed)] if found.candidates else []
        why = [Facts([("rounds", _RULE)])]
        return run_answer(run, Answer(self.ending(run), tuned_command(run), parts, why=why))


class _Row(Record):
    options: str
    candidate: TuneCandidate
    ratio: Estimate | None
    """The gain of the second round."""


def _candidates_table(found: TuneResult, timed: Sequence[str]) -> Table[_Row]:
    columns = (
        member("options", "options"),
        *(_time(name, index) for index, name in enumerate(timed)),
        member("speed", "first round", path="candidate.speed", unit="times"),
        member("ratio", "second round", _ratio_text, unit="times"),
        member("reason", "note", path="candidate.reason"),
    )
    rows = [
        _Row(found.options(index), each, found.ratio if index == found.finalist else None)
        for index, each in enumerate(found.candidates)
    ]
    return Table(columns, rows, style=lambda row: "dim" if row.candidate.speed is None else "")


def _time(name: str, index: int) -> Figure[_Row]:
    """Return the figure of a time of the first round."""

    def of(row: _Row) -> float | None:
        times = row.candidate.times_ms
        return times[index] if index < len(times) else None

    return Figure(name, name, of, unit="ms", priority=2)


PRESENTER = TunePresenter()
