"""`ggbench doctor`: each planted fault is found by its code, and the answer says nothing about the person."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Checkup, Finding, findings
from ggbench.decisions.doctor.show import DOCTOR, checkup_text, shown_checkup
from ggbench.engines.llama.build import LlamaBuild, LlamaDevice
from ggbench.machine.condition import GpuDriver
from ggbench.machine.records import GpuProcess
from ggbench.show.anonymous import Paths
from tests.fakes.machines import CUDA_BUILD, DRIVER, GIB, HOME, SOUND, WITH_GPU

PERSONAL = replace(
    WITH_GPU,
    hub=replace(SOUND.hub, token_from=f"{HOME}/.cache/huggingface/token", endpoint="https://hub.example.com"),
    store=replace(SOUND.store, problem=f"cannot read {HOME}/secret/results.sqlite: malformed"),
    places=(replace(SOUND.places[0], path="/scratch/alice/ggbench"), *SOUND.places[1:]),
    driver=replace(DRIVER, gpus=(replace(DRIVER.gpus[0], processes=(GpuProcess(7, f"{HOME}/bin/train", 1 << 30),)),)),
)


def text_of(checkup: Checkup, paths: Paths) -> str:
    return checkup_text(checkup, findings(checkup, paths), paths)


def json_of(checkup: Checkup, paths: Paths) -> str:
    return DOCTOR.text(shown_checkup(checkup, paths), findings=findings(checkup, paths))


def test_text_of_a_machine_with_faults(golden: Callable[[str, str], None]) -> None:
    faulty = replace(
        WITH_GPU,
        cpu=replace(SOUND.cpu, governors=("powersave",), busy_share=0.04),
        store=replace(SOUND.store, version=9),
    )
    golden("doctor.txt", text_of(faulty, Paths(Path(HOME))) + "\n")
    read = json.loads(json_of(faulty, Paths(Path(HOME))))
    assert [(each["code"], each["severity"]) for each in read["findings"]] == [
        ("store.newer", "problem"), ("cpu.governor", "advice"),
    ]  # fmt: skip
    assert (read["llama_cpp"]["cuda_version"], read["gpu_driver"]["cuda_version"]) == ("12.4", "13.0")
    assert read["gpu_driver"]["gpus"][0]["compute_capability"] == "8.9"
    assert (read["store"]["n_runs"], read["calibration"]["bandwidth"]["bytes_per_s"]) == (12, 12.8e9)


def test_nothing_personal_is_shown() -> None:
    paths = Paths(Path(HOME))
    for text in (text_of(PERSONAL, paths), json_of(PERSONAL, paths)):
        for private in ("alice", "scratch", "example.com", "GPU-1", "0000:01:00.0"):
            assert private not in text
    assert "~/.cache/huggingface/token" in text_of(PERSONAL, paths)
    whole = Paths(Path(HOME), whole=True)
    for text in (text_of(PERSONAL, whole), json_of(PERSONAL, whole)):
        for private in (f"{HOME}/.cache/huggingface/token", "/scratch/alice/ggbench", "hub.example.com", "GPU-1"):
            assert private in text


def test_a_gpu_of_any_backend_is_listed_with_its_memory() -> None:
    device = LlamaDevice("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "Vulkan", True, 23 * GIB, 24 * GIB)
    llama = replace(SOUND.llama, devices=(device, *SOUND.llama.devices))

    text = text_of(replace(SOUND, llama=llama), Paths(Path(HOME)))

    assert "GPU Vulkan0: AMD Radeon RX 7900 XTX (RADV NAVI31), 23.0 GiB of 24.0 GiB free" in text
    assert "GPU: none that llama.cpp or NVIDIA's driver lists" in text_of(SOUND, Paths(Path(HOME)))


PATHS = Paths(Path(HOME))
WITH_AMX = {"CPU": {"AVX2": "1", "AVX512": "1", "AMX_INT8": "1"}}


def found_in(checkup: Checkup) -> tuple[Finding, ...]:
    return findings(checkup, PATHS)


def with_cpu(**changes: object) -> Checkup:
    return replace(SOUND, cpu=replace(SOUND.cpu, **changes))


def with_memory(**changes: object) -> Checkup:
    return replace(SOUND, memory=replace(SOUND.memory, **changes))


def with_store(**changes: object) -> Checkup:
    return replace(SOUND, store=replace(SOUND.store, **changes))


def with_hub(**changes: object) -> Checkup:
    return replace(SOUND, hub=replace(SOUND.hub, **changes))


def with_gpu(**changes: object) -> Checkup:
    gpu = replace(DRIVER.gpus[0], **changes)
    return replace(WITH_GPU, driver=replace(DRIVER, gpus=(gpu,)))


def with_place(**changes: object) -> Checkup:
    return replace(SOUND, places=(replace(SOUND.places[0], **changes), *SOUND.places[1:]))


@pytest.mark.parametrize("checkup", [SOUND, WITH_GPU], ids=["CPU", "GPU"])
def test_a_sound_machine_has_no_findings(checkup: Checkup) -> None:
    assert found_in(checkup) == ()


@pytest.mark.parametrize(
    ("checkup", "code", "severity", "says", "to_do"),
    [
        (replace(SOUND, llama=LlamaBuild(is_installed=False, problem="not installed")),
         "llama.missing", "problem", "not installed", "./scripts/setup"),
        (replace(SOUND, llama=LlamaBuild(problem=f"OSError: {HOME}/x/libggml-cuda.so: libcuda.so.1: no such file")),
         "llama.broken", "problem", "libcuda.so.1", "NVIDIA's driver"),
        (replace(SOUND, llama=LlamaBuild(problem="its process was killed by SIGABRT: vk: device lost")),
         "llama.broken", "problem", "killed by SIGABRT: vk: device lost", "update the GPU's driver"),
        (replace(SOUND, llama=replace(SOUND.llama, llama_cpp_python="0.3.9")),
         "llama.old", "problem", "0.3.9", "0.3.36"),
        (with_cpu(instructions=SOUND.cpu.instructions | {"avx512_vnni", "amx_int8"}),
         "llama.instructions", "advice", "without AVX512_VNNI,", "GGML_NATIVE=on"),
        (replace(SOUND, llama=replace(SOUND.llama, features=WITH_AMX)),
         "llama.amx", "advice", "AMX", "./scripts/setup"),
        (replace(SOUND, driver=DRIVER), "llama.cuda", "advice", "NVIDIA RTX 4090 is not used", "GGML_CUDA=on"),
        (replace(WITH_GPU, driver=replace(DRIVER, cuda_version=(11, 4))),
         "gpu.driver_old", "problem", "driver 580.1 supports at most CUDA 11.4", "update NVIDIA's driver"),
        (replace(WITH_GPU, llama=replace(CUDA_BUILD, devices=SOUND.llama.devices)),
         "gpu.unseen", "problem", "sees no GPU", "restart"),
        (replace(SOUND, driver=GpuDriver(problem="Driver/library version mismatch")),
         "gpu.driver", "problem", "version mismatch", "restart the machine"),
        (replace(SOUND, driver=GpuDriver(problem="NVML Shared Library Not Found")),
         "gpu.driver", "problem", "Not Found", "install NVIDIA's driver"),
        (replace(WITH_GPU, driver=replace(DRIVER, n_visible=0)), "gpu.hidden", "advice", "hides every GPU", "unset it"),
        (with_gpu(compute_capability=(6, 1)), "gpu.architecture", "problem", "does not run on", "ARCHITECTURES=61"),
        (with_gpu(compute_capability=(9, 0)), "gpu.architecture", "advice", "(9.0)", "ARCHITECTURES=90"),
        (with_gpu(gpu=replace(DRIVER.gpus[0].gpu, free_bytes=10 * GIB),
                  processes=(GpuProcess(4242, f"{HOME}/bin/train.py", 13 * GIB),)),
         "gpu.used", "advice", "14.0 GiB of 24.0 GiB of NVIDIA RTX 4090 are in use: train.py (pid 4242", "close"),
        (with_gpu(throttle=("sw_power_cap", "hw_thermal_slowdown")),
         "gpu.throttle", "advice", "throttled: hw_thermal_slowdown", "cooling"),
        (with_cpu(governors=("powersave",)), "cpu.governor", "advice", "governor is powersave", "cpupower"),
        (with_cpu(governors=("powersave",), scaling_driver="intel_pstate", energy_preference="balance_power"),
         "cpu.governor", "advice", "balance_power", "powerprofilesctl"),
        (with_cpu(is_on_battery=True), "cpu.battery", "advice", "battery", "plug it in"),
        (with_cpu(busy_share=0.6), "cpu.busy", "advice", "60 % of the CPU", "close them"),
        (with_cpu(quota_cpus=1.5), "cpu.quota", "advice", "1.50 of 16 CPUs", "--cpus"),
        (with_memory(huge_pages="never"), "memory.huge_pages", "advice", "are off", "transparent_hugepage/enabled"),
        (with_memory(container_limit_bytes=16 * GIB, available_bytes=15 * GIB),
         "memory.container", "advice", "16.0 GiB of 64.0 GiB", "--memory"),
        (with_memory(address_space_limit_bytes=4 * GIB), "memory.address_space", "problem", "4.00 GiB", "ulimit -v"),
        (with_memory(overcommit=2), "memory.overcommit", "advice", "overcommit_memory is 2", "sysctl"),
        (with_memory(available_bytes=10 * GIB), "memory.used", "advice", "10.0 GiB of 64.0 GiB", "close programs"),
        (with_place(free_bytes=4096, disk=2), "disk.full", "problem", "4.00 KiB", "~/.cache/ggbench/twins (twins"),
        (with_place(free_bytes=2 * GIB), "disk.full", "advice", "results (~/.local/share/ggbench)", "free some space"),
        (with_place(is_writable=False), "disk.read_only", "problem", "cannot be written", "XDG_DATA_HOME"),
        (with_place(file_system="nfs4"), "store.network", "advice", "nfs4", "local disk"),
        (with_store(problem="database disk image is malformed"), "store.damaged", "problem", "malformed", ".recover"),
        (with_store(is_foreign=True), "store.foreign", "problem", "another program", "move it away"),
        (with_store(version=9), "store.newer", "problem", "version 9, and this ggbench knows 5", "upgrade"),
        (with_store(n_set_aside=2), "store.set_aside", "advice", "2 damaged results files moved aside", ".recover"),
        (with_hub(token_from=f"{HOME}/.cache/huggingface/token", is_exposed=True),
         "hub.token", "advice", "~/.cache/huggingface/token", "chmod 600 ~/.cache/huggingface/token"),
        (with_hub(problem="HF_ENDPOINT is not a URL"), "hub.settings", "problem", "HF_ENDPOINT", "https://"),
        (replace(SOUND, calibration=replace(SOUND.calibration, is_busy=True)),
         "calibration.busy", "advice", "busy machine", "measured again"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and " " not in value else "",
)  # fmt: skip
def test_a_fault_is_found_with_what_to_do(checkup: Checkup, code: str, severity: str, says: str, to_do: str) -> None:
    (finding,) = found_in(checkup)
    assert (finding.code, finding.severity) == (code, severity)
    assert says in finding.message
    assert to_do in finding.hint
    assert "alice" not in f"{finding.message} {finding.hint}".replace("OSError: /home/alice", "OSError: ")


@pytest.mark.parametrize(
    "checkup",
    [
        with_cpu(governors=("powersave",), scaling_driver="intel_pstate", energy_preference="balance_performance"),
        with_cpu(governors=("schedutil",)),
        with_cpu(instructions=SOUND.cpu.instructions | {"amx_int8"}),
        with_gpu(throttle=("sw_power_cap",)),
        with_memory(huge_pages="madvise", available_bytes=17 * GIB),
        with_cpu(quota_cpus=16.0),
        replace(WITH_GPU, driver=replace(DRIVER, cuda_version=(12, 0))),
    ],
    ids=["intel_pstate", "schedutil", "AMX left out", "power cap", "enough memory", "whole quota", "CUDA minor"],
)
def test_what_is_as_it_should_be_is_no_finding(checkup: Checkup) -> None:
    assert found_in(checkup) == ()


def test_problems_come_first_and_a_disk_of_several_folders_is_one_finding() -> None:
    both = replace(with_cpu(is_on_battery=True), store=replace(SOUND.store, version=9))
    assert [each.severity for each in found_in(both)] == ["problem", "advice"]
    place = replace(SOUND.places[0], free_bytes=GIB)
    places = (place, replace(place, name="temporary files", path="/tmp"), replace(place, name="other", disk=7))
    assert [each.message for each in found_in(replace(SOUND, places=places))] == [
        "1.00 GiB are free on the disk of results (~/.local/share/ggbench) and temporary files (…/tmp)",
        "1.00 GiB are free on the disk of other (~/.local/share/ggbench)",
    ]
