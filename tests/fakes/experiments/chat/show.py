"""A chat: the time of a token, by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text

from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.charts import PlottedRun
from ggbench.show.columns import Column, column
from ggbench.show.document import Shape, of
from ggbench.show.metric import MEMORY, Metric, metric_of
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments, run_documents, subject
from ggbench.units import format_ms

from .record import ChatResult, Turn


def _token_ms(summary: QuantSummary) -> float | None:
    found = summary.result(ChatResult)
    return None if found is None else found.token_ms


CHAT_MS = column("chat_ms", "chat", "ms", "Mean time of a token in a chat.", _token_ms, format_ms)


class ChatPresenter(Presenter):
    """Runs of kind `chat`."""

    kind: ClassVar[str] = "chat"
    has_line: ClassVar[bool] = False
    columns: ClassVar[tuple[Column, ...]] = (CHAT_MS,)
    documents: ClassVar[RunDocuments] = run_documents(
        "chat",
        Shape(
            "Chat", "The time of a token, by turn.", subject("quant"),
            of(ChatResult, "turns", lambda run: run.result), of(Run, "outcome run_id"),
        ),
    )  # fmt: skip

    def answer(self, run: Run) -> str:
        found = run.result
        return f"{len(found.turns)} turns, {format_ms(found.token_ms)} ms" if isinstance(found, ChatResult) else ""

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        return tuple(f"turn {each.number}" for each in run.observations if isinstance(each, Turn))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return metric_of(CHAT_MS, more_is_better=False, topic="chat"), MEMORY

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        return Text(f"details: {self.ending(run)}\nAgain: {run.head.command}")

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return Text("\n".join(map(self.ending, runs)))


PRESENTER = ChatPresenter()
