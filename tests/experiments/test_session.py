"""Sessions: what each turn finds in the cache, what is read again and why, and sessions that cannot be measured."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines.contract import Engine, EngineConfig, Source, TakeTurn
from ggbench.engines.endings import Completed
from ggbench.engines.events import TurnStarted
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.http.engine import HttpEngine
from ggbench.engines.http.messages import OfferedModel
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine, launch
from ggbench.errors import DoesNotFit, GgbenchError
from ggbench.expect.sessions import Turn
from ggbench.experiments.session.measure import EXPERIMENT
from ggbench.experiments.session.record import SessionResult, SessionSettings
from ggbench.machine.environment import environment
from ggbench.models.served_models import ServedModel
from ggbench.models.targets import Target
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished, Working
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from ggbench.show.presenter import presenter_of
from tests.fakes.endpoint import TestEndpoint
from tests.fakes.endpoint_voices import AnyLength, Body
from tests.fakes.engine import fake_rig

TURNS = (Turn(60, 5), Turn(30, 5), Turn(30, 4), Turn(20, 3, kept=0.5))


class Caching(AnyLength):
    """A llama-server of two slots that finds the common prefix, or as much of it as `forgets` leaves at a turn."""

    def __init__(self, forgets: dict[int, int] | None = None, slots: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        super().__init__("llama_server")
        self._forgets, self._slots = forgets or {}, slots
        self._cache: list[int] = []
        self._turn = 0

    def _said(self, body: Body) -> Iterator[bytes]:
        prompt = list(body["prompt"])
        same = [one == other for one, other in zip(prompt, self._cache, strict=False)]
        n_cached = same.index(False) if False in same else len(same)
        n_cached = min(n_cached, self._forgets.get(self._turn, n_cached)) if body["cache_prompt"] else 0
        slot, self._turn = self._slots[self._turn], self._turn + 1
        answer = list(range(9000, 9000 + body["n_predict"]))
        for n, line in enumerate(super()._llama_server(body)):
            if line:
                chunk = json.loads(line.removeprefix(b"data: ")) | {"id_slot": slot}
                chunk["tokens"] = [] if chunk["stop"] else [answer[n // 2]]
                chunk["timings"]["cache_n"] = n_cached
                line = b"data: " + json.dumps(chunk).encode()
            yield line
        self._cache = [*prompt, *answer[:-1]]

    def stream(self, path: str, body: Body) -> Iterator:  # type: ignore[type-arg]
        self._lines["/completion"] = self._said
        return super().stream(path, body)


def served(voice: AnyLength, turns: tuple[Turn, ...] = TURNS) -> Run:
    def start(setup: EngineConfig, cancel: threading.Event) -> Engine:
        return HttpEngine(cancel, timeout_s=5)

    context = RunContext(launch=start, threads=2, describe_environment=environment)
    with TestEndpoint(voice) as endpoint:
        setup = EndpointConfig(endpoint.url, "SmolLM2-135M-Instruct.Q4_1.gguf")
        target = Target("tiny", "q4_1", "endpoint", source=ServedModel(OfferedModel(setup.model), setup))
        *_, finished = run_job(context, Job(EXPERIMENT, target, setup, SessionSettings("chat", turns=turns)))
    assert isinstance(finished, Finished)
    if finished.error is not None:
        raise finished.error
    assert isinstance(finished.run.result, SessionResult)
    return finished.run


def test_a_server_that_keeps_its_cache_reads_what_is_new() -> None:
    """The answer's last token is in no cache; a turn that drops half of the transcript reads none of it again."""
    result = served(Caching()).result
    assert isinstance(result, SessionResult) and result.serving is not None
    assert [turn.n_read for turn in result.turns[:3]] == [60, 31, 31]
    assert (result.turns[3].n_cached or 0) >= result.turns[3].n_kept == 67
    assert [turn.n_reread for turn in result.turns] == [0] * 4
    assert not result.serving.remarks and {turn.cause for turn in result.turns} == {""}


@pytest.mark.parametrize(
    ("voice", "cause", "n_reread"),
    [
        (Caching({2: 40}), "unknown", 59),
        (Caching({2: 40}, (0, 0, 1, 1)), "slot", 59),
        (Caching({1: 60}), "", 0),
        (Caching({2: 0}), "unknown", 99),
    ],
)
def test_what_is_read_again_is_counted_with_its_cause(voice: Caching, cause: str, n_reread: int) -> None:
    run = served(voice)
    assert isinstance(run.result, SessionResult)
    assert (run.result.turns[2].cause, run.result.n_reread) == (cause, n_reread)
    notes = " ".join(presenter_of("session").details(run).notes)
    assert ("first in turn 3)" in notes) == bool(cause)


def test_a_session_that_a_server_cannot_hold_is_refused_before_a_turn() -> None:
    with pytest.raises(DoesNotFit, match="tokens of context") as error:
        served(Caching(), (Turn(100, 10), Turn(1 << 20, 10)))
    assert "--turns 1" in error.value.hint


def test_llama_cpp_keeps_the_cache_and_cuts_it(tiny_twin: Path) -> None:
    engine = launch(threading.Event(), timeout_s=60)
    assert isinstance(engine, LlamaEngine)
    try:
        *_, opened = engine.open(Source(tiny_twin), LlamaConfig(n_ctx=256, threads=1))
        found = []
        for turn in (TakeTurn(40, 3, 0), TakeTurn(60, 3, 44), TakeTurn(50, 0, 30)):
            *events, ending = engine.run(turn)
            assert isinstance(ending, Completed), ending
            found += [each.n_cached for each in events if isinstance(each, TurnStarted)]
    finally:
        engine.close()
    assert isinstance(opened, Completed)
    assert found == [0, 43, 30]


@pytest.mark.parametrize(
    "text", [b"", b"\x00\xff\xfe", b'{"new": -1, "generated": 5}', b'{"new": 1e99, "generated": 5}']
)
def test_a_file_without_a_session_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_bytes(text)
    with pytest.raises(GgbenchError) as error:
        SessionSettings(str(path))
    assert error.value.exit_code == 5 and "\n" not in error.value.message


def test_an_interrupted_session_says_how_many_turns_it_had(target: Target) -> None:
    cancel = threading.Event()
    context, _ = fake_rig(cancel=cancel)
    settings = SessionSettings("chat", turns=TURNS)
    progress = run_job(context, Job(EXPERIMENT, target, LlamaConfig(), settings))
    doing: list[str] = []
    n_turns = 0
    for each in progress:
        if isinstance(each, Working) and each.text:
            doing.append(each.text)
        n_turns += hasattr(each, "observation")
        if n_turns == 2:
            cancel.set()
            break
    assert [each.partition(":")[0] for each in doing] == ["turn 1 of 4", "turn 2 of 4"]
    *_, finished = progress
    assert isinstance(finished, Finished) and isinstance(finished.run.result, SessionResult)
    assert len(finished.run.result.turns) == 2
    assert presenter_of("session").answer(finished.run).startswith("2 of 4 turns")
