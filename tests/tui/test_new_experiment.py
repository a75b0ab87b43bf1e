"""An experiment and its presenter, defined here, in the queue, the Run screen and the Results."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from rich.text import Text
from textual.pilot import Pilot

from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.records import MachineReading
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.experiment import Concluded, Conclusion, Experiment, Job, experiment_of
from ggbench.runs.progress import Point, Progress, Working
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result, Run, Settings
from ggbench.runs.session import Session
from ggbench.show.presenter import Presenter
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.app import GgbenchApp
from ggbench.tui.work_queue import WorkState
from tests.fakes.driving import press
from tests.fakes.parts import install
from tests.fakes.snapshots import words_of
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive


class CountSettings(Settings, msgspec.Struct, frozen=True):
    n: int


class Counted(msgspec.Struct, frozen=True):
    n: int


class CountResult(Result, msgspec.Struct, frozen=True):
    total: int


class CountExperiment(Experiment):
    kind: ClassVar[str] = "count"
    settings_type = CountSettings
    result_type = CountResult
    observed = (Counted,)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        session.begin(None)
        for n in range(session.settings(CountSettings).n):
            yield Working("probe", text=f"counting {n}")
            session.recorder.observe(Counted(n))
            yield Point(f"counted {n}", Counted(n))
        return Concluded()

    def reduce(self, recording: Recording) -> CountResult:
        return CountResult(sum(each.n for each in recording.of(Counted)))

    def command(self, job: Job, bandwidth: Bandwidth | None = None) -> str:
        return "ggbench count"


class CountPresenter(Presenter):
    kind: ClassVar[str] = "count"
    title: ClassVar[str] = "a count"
    has_samples: ClassVar[bool] = False

    def answer(self, run: Run) -> str:
        assert isinstance(run.result, CountResult)
        return f"counted to {run.result.total}"

    def document(self, run: Run) -> dict[str, object]:
        return {}

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> Text:
        return Text(f"details: {self.answer(run)}")

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> Text:
        return Text()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "ggbench.experiments.count.measure", EXPERIMENT=CountExperiment())
    install(monkeypatch, "ggbench.experiments.count.show", PRESENTER=CountPresenter())


def test_it_is_run_listed_and_opened(app: GgbenchApp, tiny_twin: Path, drive: Drive) -> None:
    (target,) = resolve(parse_model(str(tiny_twin)))
    job = Job(experiment_of("count"), target, LlamaConfig(), CountSettings(4))

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        queue = WatchedQueue(app.run_queue)
        app.run_queue.add([job])
        await queue.idle()
        assert app.run_queue.items[0].state is WorkState.DONE
        shown = await press(app, pilot, "2")
        assert "counted to 6" in shown
        assert "counted 3" in shown
        shown = await press(app, pilot, "3")
        assert "counted to 6" in shown
        shown = await press(app, pilot, "enter")
        assert "details: counted to 6" in shown
        assert "Run 1 · count" in words_of(app)

    drive(app, steps, (300, 45))
