"""A chat: the time of a token, by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.answer import Answer
from ggbench.show.charts import PlottedRun
from ggbench.show.figure import Figure
from ggbench.show.metric import Metric, memory_metric
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.units import format_ms

from .record import ChatResult, Turn


def _token_ms(summary: Run) -> float | None:
    found = summary.result_as(ChatResult)
    return None if found is None else found.token_ms


CHAT_MS = Figure("chat_ms", "chat", _token_ms, format_ms, "ms", "Mean time of a token in a chat.", "less")


class ChatPresenter(Presenter):
    """Runs of kind `chat`."""

    kind: ClassVar[str] = "chat"
    has_line: ClassVar[bool] = False
    figures: ClassVar[tuple[Figure[Run], ...]] = (CHAT_MS,)
    documents: ClassVar[RunDocuments] = RunDocuments("chat", (CHAT_MS,), "The time of a token, by turn.")

    def answer(self, run: Run) -> str:
        found = run.result
        return f"{len(found.turns)} turns, {format_ms(found.token_ms)} ms" if isinstance(found, ChatResult) else ""

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        return tuple(f"turn {each.number}" for each in run.observations if isinstance(each, Turn))

    def metrics(self, summaries: Sequence[Run]) -> tuple[Metric, ...]:
        return Metric(CHAT_MS, "chat"), memory_metric(summaries)

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        return Answer(f"details: {self.ending(run)}", run.head.command)

    def table(self, runs: Sequence[Run]) -> Answer:
        return Answer("\n".join(map(self.ending, runs)))


PRESENTER = ChatPresenter()
