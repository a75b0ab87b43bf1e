"""The whole way with nothing faked but the size of the model: from the Library over a run to the Results."""

from pathlib import Path

import msgspec.structs
import pytest
from textual.pilot import Pilot

from ggbench.models.disk import models_in_place
from ggbench.runs.experiment import Experiment
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.app import GgbenchApp
from ggbench.tui.services import Services
from tests.fakes.driving import press, words_of
from tests.fakes.library import BUDGET
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import Drive


def rig(store: Store | None, experiment: Experiment) -> RunContext:
    return msgspec.structs.replace(run_context(store, given_bandwidth=Bandwidth(20e9, "given in a test")), threads=1)


@pytest.mark.llama
def test_from_the_library_to_the_results(tiny_twin: Path, drive: Drive) -> None:
    budget = msgspec.structs.replace(BUDGET, device="this test", on_gpu=False)
    services = msgspec.structs.replace(
        Services.of_this_machine(offline=True),
        run_context=rig,
        local_models=lambda: models_in_place(tiny_twin),
        machine_budget=lambda _setup: budget,
    )

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        queue = WatchedQueue(app.run_queue)
        assert "q8_0" in words_of(app)
        assert "✓" in words_of(app)
        await press(app, pilot, "b")
        assert app.current_mode == "run"
        await queue.idle()
        (measured,) = app.run_queue.items
        assert measured.run is not None
        await press(app, pilot, "3")
        assert "q8_0" in words_of(app)
        assert "completed" in words_of(app)

    drive(GgbenchApp(services, n_gen=64), steps, (140, 45))
    with Store.open() as store:
        assert {run.state for run in store.list_runs()} == {"completed"}
