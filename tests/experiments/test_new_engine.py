"""The test of the design: an engine is one folder, here outside the package, and no other line names it.

Its MODEL, its options and its runs go through the command line, the store, the results, a comparison and the TUI.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from ggbench import extras
from ggbench.engines.contract import config_type, engine_module
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.fields import reproduce
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.session import run_context
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.tui.app import GgbenchApp
from ggbench.tui.host import Services
from ggbench.tui.work_queue import WorkState
from tests.cli import validation
from tests.cli.conftest import Run, ggbench  # noqa: F401 - a fixture
from tests.fakes import engines as planted
from tests.fakes.driving import press, see, words_of
from tests.fakes.watched import WatchedQueue
from tests.tui.conftest import (  # noqa: F401 - fixtures
    Drive,
    drive,
    jobs,
    pilots_look_at_the_app,
    planner,
    services,
)

FOLDER = str(Path(planted.__path__[0]))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder beside the package's own, in this process, and the commands imported again with its options."""
    monkeypatch.setattr(extras, "__path__", [*extras.__path__, FOLDER])
    for name in [each for each in sys.modules if each.endswith((".command", ".commands.options"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(validation, "_validator", validation._validator.__wrapped__)  # its schemas may be older
    yield
    for name in [each for each in sys.modules if each.startswith("ggbench.extras.planted")]:
        del sys.modules[name]


def test_an_engine_in_a_folder_of_its_own_is_measured_and_compared(installed: None, ggbench: Run) -> None:  # noqa: F811
    words = ("decode", "planted:tiny:p1", "--slots", 2, "-n")
    assert ggbench(*words, 2400).code == 0
    ran = ggbench(*words, 2500, "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    setup = document["run"]["head"]["setup"]
    assert (setup["quant"], setup["slots"]) == ("p1", 2)
    assert document["b_ms"] == pytest.approx(20, rel=0.01)
    assert document["w_tokens_per_ms"] == pytest.approx(100, rel=0.01)
    assert document["command"] == "ggbench decode planted:tiny p1 -n 2500 --slots 2"
    with Store.open() as store:
        run = read_run(store, store.load_run(document["run_id"]))
    assert (run.head.setup.engine, type(run.head.setup)) == ("planted", config_type("planted"))

    assert "planted:tiny" in ggbench("results").out
    compared = ggbench("compare", 1, 2, "--why")
    assert compared.code == 0 and "n_gen: 2,400 in a, 2,500 in b" in compared.out, compared.err


def test_its_model_is_measured_and_read_in_the_tui(installed: None, services: Services, drive: Drive) -> None:  # noqa: F811
    target = resolve_one(parse_model("planted:tiny:p1"))
    job = Job(experiment_of("decode"), target, config_type("planted")(), DecodeSettings(300))
    real = replace(services, open_store=Store.open, run_context=lambda store, _: run_context(store))

    async def steps(app: GgbenchApp, pilot: Pilot[None]) -> None:
        queue = WatchedQueue(app.run_queue)
        app.run_queue.add([job])
        await queue.idle()
        assert app.run_queue.items[0].state is WorkState.DONE
        await press(app, pilot, "3")
        assert "planted:tiny" in words_of(app)
        page = await see(app, pilot, "enter", "w", "end")
        assert "Again" in page and "ggbench decode planted:tiny p1" in page

    drive(GgbenchApp(real), steps, (160, 80))


def test_what_it_cannot_do_is_said_with_its_reason(installed: None, ggbench: Run) -> None:  # noqa: F811
    ran = ggbench("maxctx", "planted:tiny:p1")
    assert ran.code != 0 and "Planted cannot fill a context" in ran.err
    ran = ggbench("quality", "planted:tiny:p1")
    assert ran.code == 2 and "Planted cannot score" in ran.err
    ran = ggbench("decode", "twin:qwen1.5-0.5b", "q4_0", "--slots", 2)
    assert ran.code == 2 and "--slots is only for a model, but twin:qwen1.5-0.5b is not one" in ran.err


def test_its_name_is_taken_from_no_list(installed: None) -> None:
    ref = parse_model("planted:tiny:P1")
    assert (ref.engine, ref.name, ref.quants, ref.label) == ("planted", "tiny", ("p1",), "planted:tiny")
    config = config_type("planted")(slots=4)  # type: ignore[call-arg]
    assert reproduce("decode", ("m",), config, {}) == "ggbench decode m --slots 4"


def test_an_engine_that_is_not_there_is_an_error() -> None:
    for name in ("nonesuch", "planted", "../evil", ""):
        with pytest.raises(StoreError, match="no engine"):
            engine_module(name)
