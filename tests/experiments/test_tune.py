"""Searches on machines whose best settings are planted."""

import pytest

from ggbench.experiments.tune.record import TuneResult, TuneSettings
from ggbench.models.targets import Target
from ggbench.runs.run import Run
from tests.fakes.planted import Effects, PlantedMachine

AT_BOTH = TuneSettings(depths=(0, 4096), within_s=300)
SLOWER: Effects = {("threads", 1): 1.7}


def result_of(run: Run) -> TuneResult:
    assert isinstance(run.result, TuneResult)
    return run.result


def gain_of(result: TuneResult) -> str | None:
    """Return the options of the fastest, as llama-server has them; None where there is no gain."""
    return result.options(result.finalist) if result.finalist is not None and result.has_gain else None


@pytest.mark.parametrize(("slower_default", "option"), [(("flash_attn", "auto"), "-fa"), (("threads", 2), "-t")])
def test_a_slower_default_is_found_while_the_machine_drifts(
    target: Target, slower_default: tuple[str, object], option: str
) -> None:
    n_found = n_held = 0
    for seed in range(10):
        machine = PlantedMachine(seed, {**SLOWER, slower_default: 1.25}, noise=0.03, drift_per_s=0.002)
        result = result_of(machine.tune(target, AT_BOTH))
        n_found += (gain_of(result) or "").split()[::2] == [option]
        assert result.ratio is not None
        n_held += result.ratio.low <= 1.25 <= result.ratio.high
    assert n_found >= 9
    assert n_held >= 9


@pytest.mark.parametrize("effects", [{}, SLOWER])
def test_no_gain_is_claimed_where_there_is_none(target: Target, effects: dict[tuple[str, object], float]) -> None:
    results = [result_of(PlantedMachine(seed, effects, noise=0.03).tune(target, AT_BOTH)) for seed in range(10)]
    assert sum(result.has_gain for result in results) <= 1


@pytest.mark.parametrize("fatal_from", [12, 45])
def test_a_setting_that_failed_is_not_tried_again(target: Target, fatal_from: int) -> None:
    """In either round; then the next fastest is measured again."""
    effects: Effects = {("flash_attn", "off"): 0.6, ("threads", 4): 0.8, ("threads", 1): 1.7}
    machine = PlantedMachine(1, effects, fatal=("flash_attn", "off"), fatal_from=fatal_from)
    result = result_of(machine.tune(target, AT_BOTH))
    assert machine.n_fatal == 1
    assert [bool(each.reason) for each in result.candidates if each.setup.flash_attn == "off"] == [True]
    assert gain_of(result) == "-t 4"
