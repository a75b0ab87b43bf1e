"""`ggbench doctor`: each planted fault is found by its code, with what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Checkup, describe_folder, unused_instructions
from ggbench.decisions.doctor.findings import findings
from ggbench.decisions.doctor.show import DOCTOR, checkup_answer
from ggbench.engines.llama.build import LlamaBuild, LlamaDevice
from ggbench.machine.records import GpuProcess
from tests.fakes.machines import CUDA_BUILD, GIB, HOME, READING, SOUND, WITH_GPU


def checked(checkup: Checkup) -> Checkup:
    return replace(checkup, findings=findings(checkup))


def test_the_worst_finding_comes_first_with_what_mends_it(
    golden: Callable[[str, str], None], render: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", HOME)
    store = replace(SOUND.results, problem="the results file is damaged", hint="move it away")
    faulty = checked(replace(WITH_GPU, unused_instructions=("AVX512_VNNI",), results=store))
    golden("doctor.txt", render(checkup_answer(faulty).rich(why=True)))
    read = json.loads(DOCTOR.text(faulty))
    assert [(each["code"], each["severity"]) for each in read["findings"]] == [
        ("results", "problem"), ("llama.instructions", "advice"),
    ]  # fmt: skip
    assert (read["gpus"][0]["used_bytes"], read["bandwidth"]["bytes_per_s"]) == (GIB, 12.8e9)


def test_a_gpu_of_any_backend_is_listed_with_its_memory(render: Callable[..., str]) -> None:
    device = LlamaDevice("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "Vulkan", True, 23 * GIB, 24 * GIB)
    llama = replace(SOUND.llama_cpp, devices=(device, *SOUND.llama_cpp.devices))
    text = render(checkup_answer(replace(SOUND, llama_cpp=llama)))
    assert "GPU Vulkan0  AMD Radeon RX 7900 XTX (RADV NAVI31), 23.0 GiB of 24.0 GiB free" in text
    assert "none that llama.cpp or NVIDIA's driver lists" in render(checkup_answer(SOUND))


def test_advice_alone_is_no_problem() -> None:
    answer = checkup_answer(checked(replace(SOUND, unused_instructions=("AVX512_VNNI",))))
    assert answer.text.startswith("All well, but llama.cpp was compiled without AVX512_VNNI")
    assert "-DGGML_NATIVE=on" in answer.command
    assert checkup_answer(SOUND).text.startswith("All well")


def test_instructions_that_the_build_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.decisions.doctor.checkup.PROC", tmp_path)
    (tmp_path / "cpuinfo").write_text("model name : A CPU\nflags\t\t: fpu avx2 avx512f avx512_vnni\n\nflags : f16c\n")
    assert unused_instructions(SOUND.llama_cpp) == ("AVX512_VNNI",)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd i8mm\n")  # as Arm has them
    assert unused_instructions(SOUND.llama_cpp) == ("NEON", "MATMUL_INT8")
    assert unused_instructions(LlamaBuild()) == ()


def with_gpu(**changes: object) -> Checkup:
    return replace(WITH_GPU, gpus=(replace(READING, **changes),))


def with_folder(**changes: object) -> Checkup:
    return replace(SOUND, folders=(replace(SOUND.folders[0], **changes), *SOUND.folders[1:]))


@pytest.mark.parametrize(
    ("checkup", "code", "severity", "says", "to_do"),
    [
        (replace(SOUND, llama_cpp=LlamaBuild(problem="its process was killed by SIGABRT: vk: device lost")),
         "llama", "problem", "killed by SIGABRT: vk: device lost", "update the GPU's driver"),
        (replace(SOUND, unused_instructions=("AVX512_VNNI",)),
         "llama.instructions", "advice", "without AVX512_VNNI,", "compile it on this machine"),
        (replace(SOUND, llama_cpp=replace(SOUND.llama_cpp, new_fields=("moe_cache_size",))),
         "llama.binding", "advice", "moe_cache_size stay at llama.cpp's defaults", "install that one"),
        (replace(WITH_GPU, llama_cpp=replace(CUDA_BUILD, devices=SOUND.llama_cpp.devices)),
         "gpu.driver", "problem", "sees no GPU; driver 580.1", "CUDA_VISIBLE_DEVICES"),
        (replace(SOUND, driver_problem="Driver/library version mismatch"),
         "gpu.driver", "problem", "version mismatch", "restart the machine"),
        (with_gpu(used_bytes=14 * GIB, processes=(GpuProcess(4242, f"{HOME}/bin/train.py", 13 * GIB),)),
         "busy", "advice", "14.0 GiB of 24.0 GiB of NVIDIA RTX 4090 are in use: train.py (pid 4242", "close"),
        (with_folder(free_bytes=4096), "disk", "problem", "4.00 KiB", ".cache/ggbench"),
        (with_folder(free_bytes=2 * GIB), "disk", "advice", "on the disk of results", "free some space"),
    ],
)  # fmt: skip
def test_a_fault_is_found_with_what_to_do(checkup: Checkup, code: str, severity: str, says: str, to_do: str) -> None:
    (finding,) = findings(checkup)
    assert (finding.code, finding.severity) == (code, severity)
    assert says in finding.message
    assert to_do in finding.hint


@pytest.mark.parametrize("checkup", [SOUND, WITH_GPU])
def test_what_is_as_it_should_be_is_no_finding(checkup: Checkup) -> None:
    assert findings(checkup) == ()


def test_a_missing_folder_has_the_disk_of_the_nearest_above(tmp_path: Path) -> None:
    missing = describe_folder("results", "XDG_DATA_HOME", tmp_path / "a/b/c")
    assert missing.is_writable
    assert missing.free_bytes is not None
    assert abs(missing.free_bytes - psutil.disk_usage(str(tmp_path)).free) < 1 << 30
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path, is_link: bool) -> None:
    blocking = tmp_path / "blocking"
    blocking.symlink_to(tmp_path / "missing") if is_link else blocking.touch()
    assert not describe_folder("results", "XDG_DATA_HOME", blocking / "ggbench").is_writable
