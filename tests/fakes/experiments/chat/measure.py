"""One turn after another, each from an empty cache."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from ggbench.engines.contract import BatchedDecode, Prefill
from ggbench.engines.endings import Completed
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.progress import PointMeasured, Progress
from ggbench.runs.recording import Recording
from ggbench.runs.session import Session

from .record import ChatResult, ChatSettings, Turn


class ChatExperiment(Experiment):
    """Ask, and time the answer."""

    kind: ClassVar[str] = "chat"
    settings_type = ChatSettings
    result_type = ChatResult
    observed = (Turn,)
    measures_speed: ClassVar[bool] = False

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        settings = session.settings(ChatSettings)
        yield from session.prepare()
        ending = yield from session.open()
        for number in range(settings.turns):
            if not isinstance(ending, Completed):
                return ending
            n_question, series = 32 * (number + 1), f"chat/t{number}"
            yield from session.run(Prefill(n_question))
            n_total = settings.turns * settings.n_answer
            ending = yield from session.run(BatchedDecode(n_question, settings.n_answer, 1), series, n_total)
            step_ns = session.recorder.recording.series[series].step_ns
            turn = Turn(number, n_question, sum(step_ns) / len(step_ns) / 1e6)
            session.recorder.observe(turn)
            yield PointMeasured(f"turn {number}: {turn.token_ms:.1f} ms a token", turn)
        return ending

    def reduce(self, recording: Recording) -> ChatResult:
        return ChatResult(recording.of(Turn))


EXPERIMENT = ChatExperiment()
