"""The kind of memory behind a buffer's name, as ggml gives it and by the names that it has no buffer type for."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from ggbench.engines.events import MemoryKind
from ggbench.engines.llama import ggml_devices
from ggbench.engines.llama.ggml_devices import GgmlDevices, place_of

CUDA_PLACES = {
    "CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "CUDA1": MemoryKind.GPU,
    "CUDA10": MemoryKind.GPU, "CUDA_Host": MemoryKind.HOST,
    "RPC0[10.2.0.3:50052]": MemoryKind.REMOTE,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("CPU", MemoryKind.HOST), ("CPU_Mapped", MemoryKind.HOST), ("CPU_REPACK", MemoryKind.HOST),
        ("AMX", MemoryKind.HOST),
        ("CUDA_Host", MemoryKind.HOST), ("CUDA0", MemoryKind.GPU), ("CUDA10", MemoryKind.GPU),
        ("CUDA0_Split", MemoryKind.GPU),
        ("CUDA1_Split", MemoryKind.GPU), ("CUDA_Split", MemoryKind.GPU), ("RPC0[10.2.0.3:50052]", MemoryKind.REMOTE),
    ],
)  # fmt: skip
def test_a_buffer_lies_where_ggml_says_or_where_its_name_begins(name: str, place: MemoryKind) -> None:
    assert place_of(name, CUDA_PLACES) is place


@dataclass
class FakeGgml:
    """Devices by name, type and backend; each has a buffer type of its own name, and a GPU a pinned one."""

    devices: tuple[tuple[str, int, str], ...]

    def ggml_backend_dev_count(self) -> int:
        return len(self.devices)

    def ggml_backend_dev_get(self, index: int) -> int:
        return index

    def ggml_backend_dev_name(self, device: int) -> bytes:
        return self.devices[device][0].encode()

    def ggml_backend_dev_type(self, device: int) -> int:
        return self.devices[device][1]

    def ggml_backend_dev_backend_reg(self, device: int) -> int:
        return device

    def ggml_backend_reg_name(self, device: int) -> bytes:
        return self.devices[device][2].encode()

    def ggml_backend_dev_buffer_type(self, device: int) -> int:
        return 100 + device

    def ggml_backend_dev_host_buffer_type(self, device: int) -> int | None:
        return 200 + device if self.devices[device][2] == "CUDA" else None

    def ggml_backend_buft_name(self, buffer_type: int) -> bytes:
        name, _, backend = self.devices[buffer_type % 100]
        return f"{backend}_Host".encode() if buffer_type >= 200 else name.encode()

    def ggml_backend_buft_is_host(self, buffer_type: int) -> bool:
        return buffer_type >= 200 or self.devices[buffer_type % 100][1] in (ggml_devices.CPU, ggml_devices.ACCEL)


def test_the_places_of_a_machine_with_gpus_here_and_over_rpc(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = (
        ("CUDA0", ggml_devices.GPU, "CUDA"), ("RPC0[h:1]", ggml_devices.GPU, "RPC"),
        ("Vulkan0", ggml_devices.IGPU, "Vulkan"), ("BLAS", ggml_devices.ACCEL, "BLAS"),
        ("CPU", ggml_devices.CPU, "CPU"),
    )  # fmt: skip
    monkeypatch.setattr(ggml_devices, "_open", lambda library: FakeGgml(devices))
    found = GgmlDevices(Path("libllama.so"))
    assert found.places == {
        "CUDA0": MemoryKind.GPU, "CUDA_Host": MemoryKind.HOST, "RPC0[h:1]": MemoryKind.REMOTE,
        "Vulkan0": MemoryKind.GPU,
        "BLAS": MemoryKind.HOST, "CPU": MemoryKind.HOST,
    }  # fmt: skip
    assert found.buffer_types == {"CUDA0": 100, "RPC0[h:1]": 101, "Vulkan0": 102, "BLAS": 103, "CPU": 104}
    assert found.of_type(ggml_devices.GPU) == [0, 1]
