"""Searches on machines whose best settings are planted."""

import pytest

from ggbench.experiments.tune.record import TuneResult, TuneSettings
from ggbench.models.targets import Target
from ggbench.runs.run import Run
from tests.fakes.planted import Effects, PlantedMachine

AT_BOTH = TuneSettings(depths=(0, 4096), within_s=300, kv_types=("q8_0",))
SLOWER = {("threads", 1): 1.7, ("threads", 3): 1.05, ("mmap", False): 1.02}


def result_of(run: Run) -> TuneResult:
    assert isinstance(run.result, TuneResult)
    return run.result


def changed(result: TuneResult) -> dict[str, object]:
    """What the best settings change; nothing where the defaults are best."""
    return {} if result.best is None else result.changes(result.best)


def test_the_planted_best_is_found_in_19_of_20_while_the_machine_drifts(target: Target) -> None:
    at_depth = {("flash_attn", "off"): 0.6, ("type_k", "q8_0"): 0.8}
    n_found = n_held = 0
    for seed in range(20):
        machine = PlantedMachine(seed, {**SLOWER, ("threads", 4): 0.9}, at_depth, 0.03, drift_per_s=0.002)
        result = result_of(machine.tune(target, AT_BOTH))
        n_found += changed(result) == {"flash_attn": "off", "threads": 4}
        for gain, truth in zip(result.gain, (1 / 0.9, 1 / 0.54), strict=True):
            assert gain.decode is not None
            n_held += gain.decode.low <= truth <= gain.decode.high
    assert n_found >= 19
    assert n_held >= 36


@pytest.mark.parametrize("effects", [{}, SLOWER])
def test_no_gain_is_claimed_where_there_is_none(target: Target, effects: dict[tuple[str, object], float]) -> None:
    results = [result_of(PlantedMachine(seed, effects, noise=0.03).tune(target, AT_BOTH)) for seed in range(20)]
    assert sum(result.has_gain for result in results) <= 1
    assert not any(changed(result) for result in results if not result.has_gain)


@pytest.mark.parametrize("fatal_from", [25, 60])
def test_a_setting_that_failed_is_not_tried_again(target: Target, fatal_from: int) -> None:
    effects: Effects = {("flash_attn", "off"): 0.6, ("threads", 4): 0.8, ("threads", 1): 1.7}
    machine = PlantedMachine(1, effects, fatal=("flash_attn", "off"), fatal_from=fatal_from)
    result = result_of(machine.tune(target, AT_BOTH))
    failed = [each for each in result.candidates if each.state == "failed"]
    assert machine.n_fatal == len(failed) > 0
    assert changed(result)["threads"] == 4
    assert "flash_attn" not in changed(result)
