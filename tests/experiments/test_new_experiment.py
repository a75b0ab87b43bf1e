"""The test of the design: an experiment is one module, and everything else takes it as it takes its own."""

import contextlib
from collections.abc import Generator
from typing import ClassVar

import msgspec
import pytest

from ggbench.engines.endings import Completed, Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.workloads import BatchedDecode, Prefill
from ggbench.errors import UsageError
from ggbench.models.command_line import named, reproduce
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Concluded, Conclusion, Experiment, Job
from ggbench.runs.progress import Finished, Point, Progress, Samples
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result, Settings
from ggbench.runs.session import Session
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run, read_run
from ggbench.stats.decode_timing import Bandwidth
from tests.fakes.engine import fake_rig
from tests.fakes.parts import install


class ChatSettings(Settings, msgspec.Struct, frozen=True):
    turns: int
    n_answer: int = 100

    @property
    def n_ctx_needed(self) -> int:
        return 32 * self.turns + self.n_answer


class Turn(msgspec.Struct, frozen=True):
    number: int
    n_question: int


class ChatResult(Result, msgspec.Struct, frozen=True):
    token_ms: tuple[float, ...] = ()
    turns: tuple[Turn, ...] = ()


class ChatExperiment(Experiment):
    kind: ClassVar[str] = "chat"
    settings_type = ChatSettings
    result_type = ChatResult
    observed = (Turn,)
    measures_speed: ClassVar[bool] = False

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """One turn after another, each from an empty cache."""
        settings = session.settings(ChatSettings)
        yield from session.prepare()
        ending = yield from session.open()
        for number in range(settings.turns):
            if not isinstance(ending, Completed):
                return ending
            turn = Turn(number, 32 * (number + 1))
            session.recorder.observe(turn)
            yield Point(f"turn {number}", turn)
            yield from session.run(Prefill(turn.n_question))
            workload = BatchedDecode(turn.n_question, settings.n_answer, n_seqs=1)
            n_total = settings.turns * settings.n_answer
            ending = yield from session.run(workload, f"chat/t{number}", n_total)
        return Concluded(ending.outcome, ending.reason)

    def reduce(self, recording: Recording) -> ChatResult:
        medians = [sorted(series.step_ns)[len(series.step_ns) // 2] / 1e6 for series in recording.series.values()]
        return ChatResult(tuple(medians), recording.of(Turn))

    def command(self, job: Job, bandwidth: Bandwidth | None = None) -> str:
        assert isinstance(job.settings, ChatSettings)
        return reproduce("chat", named(job.target), job.setup, {"turns": job.settings.turns})


CHAT = ChatExperiment()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its module would be, and gone afterwards."""
    install(monkeypatch, "ggbench.experiments.chat.measure", EXPERIMENT=CHAT)


def test_a_new_experiment_runs_and_is_stored(target: Target, store: Store) -> None:
    rig, workers = fake_rig(store)
    progress = list(run_job(rig, Job(CHAT, target, LlamaConfig(n_ubatch=64), ChatSettings(3))))
    finished = progress[-1]
    assert isinstance(finished, Finished)
    assert (finished.run.outcome, finished.error, finished.store_error) == (Outcome.COMPLETED, None, None)
    result = finished.run.result
    assert isinstance(result, ChatResult)
    assert [turn.n_question for turn in result.turns] == [32, 64, 96]
    assert result.token_ms == pytest.approx([10.4, 10.6, 10.7], abs=0.1)
    assert [(each.n_done, each.n_total) for each in progress if isinstance(each, Samples)][-1] == (300, 300)
    assert finished.run.head.command == f"ggbench chat {target.path} --turns 3 --n-ubatch 64"
    assert workers[0].closed

    (stored,) = store.list_runs(kind="chat")
    for run in (read_run(store, stored), listed_run(stored)):
        assert (run.result, run.memory, run.head.settings) == (result, finished.run.memory, ChatSettings(3))


def test_a_new_experiment_that_is_killed_is_reduced_from_what_it_had(target: Target, store: Store) -> None:
    job = Job(CHAT, target, LlamaConfig(), ChatSettings(3))
    with contextlib.closing(run_job(fake_rig(store)[0], job)) as progress:
        next(each for each in progress if isinstance(each, Point) and each.observation == Turn(1, 64))
    run = read_run(store, store.list_runs()[0])
    assert isinstance(run.result, ChatResult)
    assert (run.result.turns, len(run.result.token_ms)) == ((Turn(0, 32), Turn(1, 64)), 1)


def test_a_new_experiment_is_checked_before_anything_is_loaded(target: Target) -> None:
    with pytest.raises(UsageError, match="does not hold the 196 tokens"):
        Job(CHAT, target, LlamaConfig(n_ctx=100), ChatSettings(3))
