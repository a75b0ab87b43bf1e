"""The memory of GPUs through a stand-in for ggml, and through the real one, which sees no GPU in the tests."""

import ctypes
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ggbench.engines.llama import ggml_devices
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.memory_limits import GpuMemory
from ggbench.engines.protocol import Refusal
from ggbench.units import GIB

CPU, GPU, IGPU = 0, 1, 2


@dataclass
class FakeGgml:
    """Devices with their type and free bytes; a ballast takes what it is given."""

    devices: list[tuple[int, int]]
    is_full: bool = False
    held: dict[int, int] = field(default_factory=dict)
    largest: int = 1 << 63
    counts: bool = True
    """Whether the driver reports what is taken."""

    def ggml_backend_dev_count(self) -> int:
        return len(self.devices)

    def ggml_backend_dev_get(self, index: int) -> int:
        return index

    def ggml_backend_dev_type(self, device: int) -> int:
        return self.devices[device][0]

    def ggml_backend_dev_backend_reg(self, device: int) -> int:
        return device

    def ggml_backend_reg_name(self, registry: int) -> bytes:
        return b"CUDA"

    def ggml_backend_dev_memory(self, device: int, free: object, total: object) -> None:
        ctypes.cast(free, ctypes.POINTER(ctypes.c_size_t))[0] = self._free(device)  # type: ignore[arg-type]

    def _free(self, device: int) -> int:
        return self.devices[device][1] - (self.held.get(device, 0) if self.counts else 0)

    def ggml_backend_buft_get_max_size(self, device: int) -> int:
        return self.largest

    def ggml_backend_dev_buffer_type(self, device: int) -> int:
        return device

    def ggml_backend_buft_alloc_buffer(self, device: int, n_bytes: int) -> int | None:
        if self.is_full or n_bytes > self.largest:
            return None
        self.held[device] = self.held.get(device, 0) + n_bytes
        return 1


def over(monkeypatch: pytest.MonkeyPatch, ggml: FakeGgml, main_gpu: int | None = None) -> GpuMemory:
    monkeypatch.setattr(ggml_devices, "_open", lambda library: ggml)
    devices = GgmlDevices(Path("libggml.so"))
    return GpuMemory(devices, devices.offloading if main_gpu is None else [main_gpu])


@pytest.mark.parametrize(
    ("limit_bytes", "reserve_bytes", "left_gib"),
    [
        pytest.param(8 * GIB, 0, 8, id="a limit"),
        pytest.param(None, 2 * GIB, 20, id="a reserve"),
        pytest.param(8 * GIB, 2 * GIB, 6, id="a reserve within a limit"),
        pytest.param(64 * GIB, 0, 22, id="a limit above what is free"),
    ],
)
def test_a_ballast_leaves_the_limit_without_the_reserve(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int | None, reserve_bytes: int, left_gib: int
) -> None:
    memory = over(monkeypatch, FakeGgml([(CPU, 0), (GPU, 22 * GIB)]))
    memory.shrink(limit_bytes, reserve_bytes)
    assert memory.left_bytes == left_gib * GIB


def test_each_gpu_is_limited_and_the_least_free_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ggml = FakeGgml([(GPU, 22 * GIB), (CPU, 0), (GPU, 10 * GIB)])
    memory = over(monkeypatch, ggml)
    assert memory.left_bytes == 20 * GIB
    memory.shrink(8 * GIB, 0)
    assert ggml.held == {0: 14 * GIB, 2: 2 * GIB}
    assert memory.left_bytes == 16 * GIB


def test_a_ballast_above_the_largest_buffer_is_made_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = over(monkeypatch, FakeGgml([(GPU, 22 * GIB)], largest=4 * GIB))
    memory.shrink(8 * GIB, 0)
    assert memory.left_bytes == 8 * GIB


def test_a_gpu_whose_driver_counts_nothing_cannot_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """llvmpipe, and Vulkan drivers without VK_EXT_memory_budget, report all of their memory as free."""
    memory = over(monkeypatch, FakeGgml([(CPU, 0), (GPU, 2 * GIB)], counts=False))
    memory.shrink(4 * GIB, 0)
    with pytest.raises(Refusal, match="does not report what is allocated"):
        memory.shrink(GIB, 0)


def test_a_main_gpu_is_the_only_one_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ggml = FakeGgml([(GPU, 0), (GPU, 10 * GIB)])
    memory = over(monkeypatch, ggml, main_gpu=1)
    memory.shrink(8 * GIB, 0)
    assert memory.left_bytes == 8 * GIB
    assert 0 not in ggml.held


def test_a_ballast_that_cannot_be_allocated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = over(monkeypatch, FakeGgml([(GPU, 22 * GIB)], is_full=True))
    with pytest.raises(Refusal, match="GPU memory"):
        memory.shrink(8 * GIB, 0)
