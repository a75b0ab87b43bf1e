"""GPU use of a run, from made-up readings once a second."""

import msgspec.structs
import pytest

from ggbench.machine.records import GpuProcess, GpuReading, MachineReading, Throttling
from ggbench.runs.machine_use import summarize_gpus, throttled

S = 1_000_000_000
WORKER, DESKTOP = GpuProcess(500, "python", 6 << 30), GpuProcess(911, "/usr/bin/desktop", 300 << 20)


def reading(second: float, *gpus: GpuReading) -> MachineReading:
    return MachineReading(round(second * S), 0.5, 1, 2, gpus)


def gpu(index: int = 0, **values: object) -> GpuReading:
    return msgspec.structs.replace(GpuReading(index, "A made-up GPU"), **values)


def test_only_what_was_timed_counts() -> None:
    readings = [
        reading(0, gpu(sm_clock_mhz=210, temperature_c=35, power_w=20)),
        reading(1, gpu(sm_clock_mhz=1900, temperature_c=60, power_w=300)),
        reading(2, gpu(sm_clock_mhz=1800, temperature_c=64, power_w=310)),
        reading(3, gpu(sm_clock_mhz=1950, temperature_c=62, power_w=290)),
        reading(4, gpu(sm_clock_mhz=210, temperature_c=90, power_w=20)),
    ]
    use = summarize_gpus(readings, [0], [(S // 2, 7 * S // 2)], 1000)
    assert use is not None
    assert (use.n_readings, use.temperature_max_c) == (3, 64)
    assert (use.sm_clock_min_mhz, use.power_mean_w) == (1800, 300)
    assert (use.energy_per_token_mj, use.throttle, use.other_processes) == (None, None, None)


def test_energy_per_token_comes_from_the_counter() -> None:
    readings = [reading(second, gpu(energy_mj=5_000_000 + 300_000 * second)) for second in range(20)]
    use = summarize_gpus(readings, [0], [(4 * S, 14 * S)], 1000)
    assert use is not None
    assert use.energy_per_token_mj == pytest.approx(3000)


@pytest.mark.parametrize("energies", [[None, None, None], [500, 500, 500], [900, 100, 200], [500, None, 900]])
def test_an_unusable_counter_gives_no_energy(energies: list[int | None]) -> None:
    readings = [reading(second, gpu(energy_mj=energy)) for second, energy in enumerate(energies)]
    use = summarize_gpus(readings, [0], [(0, 2 * S)], 100)
    assert use is not None and use.energy_per_token_mj is None


def test_several_gpus_are_combined_and_others_left_out() -> None:
    readings = [
        reading(
            second,
            gpu(0, power_w=100, energy_mj=100_000 * second, temperature_c=50, sm_clock_mhz=1500),
            gpu(1, power_w=900, energy_mj=900_000 * second, temperature_c=99, sm_clock_mhz=100),
            gpu(2, power_w=200, energy_mj=200_000 * second, temperature_c=70, sm_clock_mhz=1700),
        )
        for second in range(5)
    ]
    use = summarize_gpus(readings, [2, 0], [(0, 4 * S)], 1000)
    assert use is not None
    assert (use.indices, use.power_mean_w, use.temperature_max_c) == ((0, 2), 300, 70)
    assert use.energy_per_token_mj == pytest.approx(1200)


def test_throttle_reasons_are_counted_and_named() -> None:
    reasons = [(), ("sw_power_cap",), ("sw_power_cap", "hw_thermal_slowdown"), ("applications_clocks_setting",)]
    readings = [reading(second, gpu(throttle=throttle)) for second, throttle in enumerate(reasons)]
    use = summarize_gpus(readings, [0], [(0, 3 * S)], 100)
    assert use is not None and use.throttle is not None
    assert use.throttle[0] == Throttling("sw_power_cap", 2)
    assert {each.reason for each in use.throttle[1:]} == {"hw_thermal_slowdown", "applications_clocks_setting"}
    assert throttled(use) == (
        "the GPU lowered its clocks: sw_power_cap in 2 of 4 readings, hw_thermal_slowdown in 1 of 4 readings"
    )


def test_peak_worker_memory_is_the_sum_over_its_gpus() -> None:
    grown = msgspec.structs.replace(WORKER, used_bytes=7 << 30)
    readings = [
        reading(0, gpu(0, processes=(DESKTOP,)), gpu(1, processes=())),
        reading(1, gpu(0, processes=(WORKER, DESKTOP)), gpu(1, processes=(grown,))),
        reading(2, gpu(0, processes=(WORKER,)), gpu(1, processes=(WORKER,))),
    ]
    untold = [reading(0, gpu(processes=(msgspec.structs.replace(WORKER, used_bytes=None),)))]

    def held(readings: list[MachineReading], pid: int) -> int | None:
        use = summarize_gpus(readings, [gpu.index for gpu in readings[0].gpus], [(0, S // 2)], 100, worker_pid=pid)
        assert use is not None
        return use.worker_bytes

    assert held(readings, 500) == 13 << 30
    assert held(readings, 7) is None
    assert held(untold, 500) is None


def test_a_pause_costs_no_energy() -> None:
    energies = [0, 300, 600, 610, 620, 920, 1220]
    readings = [reading(second, gpu(energy_mj=energy * 1000)) for second, energy in enumerate(energies)]
    use = summarize_gpus(readings, [0], [(0, 2 * S), (4 * S, 6 * S)], 400)
    assert use is not None
    assert use.energy_per_token_mj == pytest.approx(3000)


def test_programs_that_were_there_before_the_worker_are_listed() -> None:
    readings = [reading(0, gpu(processes=(DESKTOP,))), reading(1, gpu(processes=(WORKER, DESKTOP)))]
    use = summarize_gpus(readings, [0], [(0, S)], 100, worker_pid=500)
    assert use is not None and use.other_processes == (DESKTOP,)


def test_without_a_reading_of_its_gpu_there_is_no_use() -> None:
    """A run on the CPU, a GPU that NVML lost, and no readings; between two readings only the programs are known."""
    assert summarize_gpus([reading(0, gpu())], [], [(0, S)], 100) is None
    assert summarize_gpus([reading(0, gpu(1))], [0], [(0, S)], 100) is None
    assert summarize_gpus([], [0], [(0, S)], 100) is None
    readings = [reading(0, gpu(power_w=20, processes=())), reading(1, gpu(power_w=20, processes=()))]
    use = summarize_gpus(readings, [0], [(S // 4, S // 2)], 10)
    assert use is not None
    assert (use.n_readings, use.power_mean_w, use.temperature_max_c, use.other_processes) == (0, None, None, ())
