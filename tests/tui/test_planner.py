"""The planner over the real llama.cpp, and over workers that record its requests."""

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec.structs
import pytest

from ggbench.decisions.pick.candidates import PickRequest
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.process import Transport
from ggbench.errors import BadFile, GgbenchError
from ggbench.expect.sessions import Conversation, Turn
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.gguf_file.header import read_model_file
from ggbench.hub.access import HubAccess
from ggbench.machine.environment import environment
from ggbench.models.reference import ModelRef
from ggbench.models.subject import Subject
from ggbench.models.targets import Target, resolve_headers
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Estimate
from ggbench.tui.planner import LibraryPlanner
from ggbench.units import GIB
from tests.fakes.engine import VERSIONS, FakeWorker

BUDGET = Budget(host=DeviceMemory(HOST_DEVICE, 4 * GIB, GIB // 4, "this test", bandwidth=Bandwidth(20e9, "given")))


@pytest.fixture
def offline() -> HubAccess:
    return msgspec.structs.replace(HubAccess.from_environment(), offline=True)


@pytest.fixture
def workers() -> list[FakeWorker]:
    return []


@pytest.fixture
def start(workers: list[FakeWorker]) -> Callable[[], LlamaEngine]:
    def start_worker() -> Transport:
        workers.append(FakeWorker(threading.Event()))
        return workers[-1]

    return lambda: LlamaEngine(start_worker)


def needing(n_ctx: int, *, is_here: bool = True) -> PickRequest:
    workload = Conversation("short", (Turn(128, 128),), "")
    budget, caches = msgspec.structs.replace(BUDGET, is_here=is_here), (("f16", "f16"),)
    return PickRequest(Needs(workload, given_n_ctx=n_ctx), budget, LlamaConfig(), caches)


def decided(steps: Generator[tuple[Candidate, ...], None, Pick | None]) -> tuple[list[Candidate], Pick | None]:
    """Return all candidates, and the pick."""
    picks: list[Pick | None] = []

    def yielded() -> Iterator[tuple[Candidate, ...]]:
        picks.append((yield from steps))

    return [each for step in yielded() for each in step], picks[0]


def test_other_needs_read_no_header_again(
    offline: HubAccess,
    start: Callable[[], LlamaEngine],
    tiny_twin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner, asked = LibraryPlanner(offline, start), list[str]()

    def counted(ref: ModelRef, *, hub: HubAccess) -> tuple[Target, ...]:
        asked.append(ref.text)
        return resolve_headers(ref, hub=hub)

    monkeypatch.setattr("ggbench.tui.planner.resolve_headers", counted)
    with Store.open(tmp_path / "results.sqlite") as store:
        for n_ctx in (512, 1024):
            candidates, pick = decided(planner.decide(str(tiny_twin), (), needing(n_ctx), store))
            assert pick is not None
            assert {each.name for each in pick.candidates} == {each.name for each in candidates}
    planner.close()
    assert asked == [str(tiny_twin)]


def test_what_was_forecast_is_expected(
    offline: HubAccess, start: Callable[[], LlamaEngine], tiny_twin: Path, home: Path
) -> None:
    file = read_model_file(tiny_twin)
    head = RunHead(
        kind="forecast",
        subject=Subject(model="tiny", quant="q8_0", source="twin", shape_key=file.shape_key),
        setup=LlamaConfig(),
        settings=ForecastSettings(),
        environment=environment(VERSIONS),
    )
    tok_s = ((1, Estimate(10.0, 9.0, 11.0)), (4096, Estimate(5.0, 4.5, 5.5)))
    with Store.open() as store:
        store.add(Run(head=head, outcome=Outcome.COMPLETED, result=ForecastResult("twins", None, None, tok_s)))
        planner = LibraryPlanner(offline, start)
        found = [planner.decide(str(tiny_twin), (), needing(4096, is_here=here), store) for here in (True, False)]
        planned, elsewhere = (decided(each)[0] for each in found)
    assert planned[0].row.expected is not None
    assert (planned[0].row.expected.source, planned[0].row.expected.basis) == ("twins", "forecast")
    assert elsewhere[0].row.expected is not None and elsewhere[0].row.expected.basis == "published"
    planner.close()


def test_headers_are_read_once_until_they_are_forgotten(
    offline: HubAccess, start: Callable[[], LlamaEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(ref: ModelRef, *, hub: HubAccess) -> tuple[Target, ...]:
        read.append(ref.text)
        return resolve_headers(ref, hub=hub)

    monkeypatch.setattr("ggbench.tui.planner.resolve_headers", counted)
    planner = LibraryPlanner(offline, start)
    for n_ctx in (512, 1024):
        list(planner.decide("qwen1.5-0.5b", ("q8_0",), needing(n_ctx), None))
    assert read == ["qwen1.5-0.5b"]
    left = planner.decide("qwen1.5-0.5b", ("q8_0",), needing(512), None)
    next(left)
    left.close()  # whoever leaves a plan lets the next one in
    planner.forget()
    list(planner.decide("qwen1.5-0.5b", ("q8_0",), needing(512), None))
    assert len(read) == 2
    planner.close()


def test_a_deleted_file_is_reported_though_its_header_is_cached(
    offline: HubAccess, start: Callable[[], LlamaEngine], tiny_twin: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy-q8_0.gguf"
    path.write_bytes(tiny_twin.read_bytes())
    planner = LibraryPlanner(offline, start)
    assert list(planner.decide(str(path), (), needing(512), None))
    path.unlink()
    with pytest.raises(BadFile):
        list(planner.decide(str(path), (), needing(512), None))
    planner.close()


def test_the_worker_is_kept_until_it_has_to_be_another(
    offline: HubAccess, start: Callable[[], LlamaEngine], workers: list[FakeWorker], tiny_twin: Path, tmp_path: Path
) -> None:
    """Another context asks the same one, another type of cache a new one; after the end none is started."""
    planner = LibraryPlanner(offline, start)
    requests = [needing(512), needing(1024), msgspec.structs.replace(needing(512), setup=LlamaConfig(type_k="q8_0"))]
    with Store.open(tmp_path / "results.sqlite") as store:
        for request in requests:
            decided(planner.decide(str(tiny_twin), (), request, store))
        assert [worker.closed for worker in workers] == [True, False]
        remote = LlamaConfig(rpc_servers=("a:1",))  # a server answers one client at a time, and the next may be a run
        decided(planner.decide(str(tiny_twin), (), msgspec.structs.replace(needing(512), setup=remote), store))
        assert [worker.closed for worker in workers] == [True, True, True]
        planner.close()
        with pytest.raises(GgbenchError, match="closing"):
            decided(planner.decide(str(tiny_twin), (), needing(512), store))
    assert len(workers) == 3


def test_the_best_models_are_found_in_a_worker_of_their_own(
    offline: HubAccess, start: Callable[[], LlamaEngine], workers: list[FakeWorker]
) -> None:
    """It ends with the pick, and also where the user no longer waits for it."""
    planner = LibraryPlanner(offline, start)
    *steps, pick = planner.best_here(needing(4096), None)
    assert steps and not any(steps)
    assert pick is not None and pick.n_current > 1
    left = planner.best_here(needing(4096), None)
    next(left)
    del left
    assert [worker.closed for worker in workers] == [True, True]


def test_the_best_models_wait_for_a_plan_with_servers_of_one_client(
    tiny_twin: Path, offline: HubAccess, start: Callable[[], LlamaEngine], workers: list[FakeWorker]
) -> None:
    """No worker of theirs is started while another one is planning."""
    beside: list[bool] = []

    def watched() -> LlamaEngine:
        beside.extend(not worker.closed for worker in workers)
        return start()

    planner, remote = LibraryPlanner(offline, watched), LlamaConfig(rpc_servers=("a:1",))
    request = msgspec.structs.replace(needing(512), setup=remote)
    plan = planner.decide(str(tiny_twin), (), request, None)
    next(plan)
    finding = threading.Thread(target=lambda: next(planner.best_here(request, None)))
    finding.start()
    plan.close()
    finding.join()
    assert (beside, [worker.closed for worker in workers]) == ([False], [True, True])
