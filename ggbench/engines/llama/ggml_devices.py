"""ggml's devices and their buffer types, through functions that llama_cpp does not bind.

They give the kind of memory for names in llama.cpp's log, and the buffer types of tensor overrides. Those of
other machines come from llama.cpp's RPC backend; source: ggml-rpc.h and `add_rpc_devices` in common/arg.cpp.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ggbench.engines.events import MemoryKind
from ggbench.engines.llama.build import LlamaDevice

CPU, GPU, IGPU, ACCEL = 0, 1, 2, 3
"""ggml's `ggml_backend_dev_type`; an integrated GPU uses main memory."""


API_VERSION = 2
"""GGML_BACKEND_API_VERSION of the private ggml-backend-impl.h for which ggbench has structures."""
_TENSOR_BYTES = 368
"""`ggml_tensor_overhead()` with the `ggml_tensor` of that version."""


class Capabilities(ctypes.Structure):
    """ggml-backend.h's `ggml_backend_dev_caps`."""

    _fields_ = tuple(
        (name, ctypes.c_bool)
        for name in ("async", "host_buffer", "buffer_from_host_ptr", "events", "mmap_support")
    )


class Properties(ctypes.Structure):
    """ggml-backend.h's `ggml_backend_dev_props`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", Capabilities),
    )


class GgmlDevices:
    """The devices that ggml has backends for, in its order."""

    def __init__(self, library: Path) -> None:
        """`library` is ggml's, or one linked with it, like llama.cpp's."""
        self.ggml = _open(library)
        count = self.ggml.ggml_backend_dev_count()
        self.every: tuple[int, ...] = tuple(self.ggml.ggml_backend_dev_get(index) for index in range(count))

    @functools.cached_property
    def interface_problem(self) -> str:
        """Why ggml's private structures are not those known here; empty if they are.

        Without them a device cannot be described, nor its functions replaced, nor its PCI bus id be read.
        """
        registry = self.ggml.ggml_backend_reg_by_name(b"CPU")
        version = ctypes.c_int.from_address(registry).value if registry else 0  # its first field
        if version != API_VERSION:
            return f"version {version} of ggml's backend interface, not {API_VERSION}"
        n_bytes = self.ggml.ggml_tensor_overhead()
        return "" if n_bytes == _TENSOR_BYTES else f"tensors of {n_bytes} bytes in ggml, not {_TENSOR_BYTES}"

    def of_type(self, *types: int) -> list[int]:
        return [device for device in self.every if self.ggml.ggml_backend_dev_type(device) in types]

    @property
    def offloading(self) -> list[int]:
        """The devices on which llama.cpp puts layers, in its order: RPC, then GPUs or, without any, integrated ones.

        Source: `llama_prepare_model_devices` in llama.cpp.
        """
        remote = [device for device in self.every if self._place(device) is MemoryKind.REMOTE]
        local = [device for device in self.of_type(GPU) if device not in remote]
        return [*remote, *(local or self.of_type(IGPU))]

    def name(self, device: int) -> str:
        """Ggml's name of a device: `CPU`, `CUDA0`, `RPC1`."""
        return str(self.ggml.ggml_backend_dev_name(device).decode())

    @property
    def buffer_types(self) -> dict[str, int]:
        """Ggml's handle of each device's own buffer type, by its name."""
        handles = (self.ggml.ggml_backend_dev_buffer_type(device) for device in self.every)
        return {self._name(handle): handle for handle in handles if handle}

    @property
    def places(self) -> dict[str, MemoryKind]:
        """The kind of memory by the name of a device, of its buffer type, or of its pinned host buffer type."""
        places: dict[str, MemoryKind] = {}
        for device in self.every:
            place = self._place(device)
            places[self.name(device)] = place
            own = self.ggml.ggml_backend_dev_buffer_type(device)
            if own:
                places[self._name(own)] = MemoryKind.HOST if self.ggml.ggml_backend_buft_is_host(own) else place
            pinned = self.ggml.ggml_backend_dev_host_buffer_type(device)
            if pinned:
                places[self._name(pinned)] = MemoryKind.HOST
        return places

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of compiled-in or loaded backends, such as `CUDA` and `CPU`."""
        count = self.ggml.ggml_backend_reg_count()
        names = (
            self.ggml.ggml_backend_reg_name(self.ggml.ggml_backend_reg_get(index)) for index in range(count)
        )
        return tuple(name.decode(errors="replace") for name in names)

    def described(self) -> tuple[LlamaDevice, ...]:
        return tuple(map(self._described, self.every))

    def _described(self, device: int) -> LlamaDevice:
        own, found, (free, total) = (
            self.ggml.ggml_backend_dev_buffer_type(device),
            Properties(),
            self.memory(device),
        )
        if not self.interface_problem:
            self.ggml.ggml_backend_dev_get_props(device, ctypes.byref(found))
        return LlamaDevice(
            name=self.name(device),
            description=(self.ggml.ggml_backend_dev_description(device) or b"")
            .decode(errors="replace")
            .strip(),
            backend=self._backend(device),
            is_gpu=self.ggml.ggml_backend_dev_type(device) in (GPU, IGPU),
            free_bytes=free,
            total_bytes=total,
            device_id=found.device_id.decode(errors="replace") if found.device_id else None,
            is_offloading=device in self.offloading,
            buffers=self._name(own) if own else "",
        )

    def memory(self, device: int) -> tuple[int, int]:
        """Return the free bytes of a device, and all."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def _backend(self, device: int) -> str:
        registry = self.ggml.ggml_backend_dev_backend_reg(device)
        return str(self.ggml.ggml_backend_reg_name(registry).decode(errors="replace"))

    def _place(self, device: int) -> MemoryKind:
        if self.ggml.ggml_backend_dev_type(device) in (CPU, ACCEL):
            return MemoryKind.HOST
        return MemoryKind.REMOTE if self._backend(device) == "RPC" else MemoryKind.GPU

    def _name(self, buffer_type: int) -> str:
        return str(self.ggml.ggml_backend_buft_name(buffer_type).decode())


def place_of(name: str, places: Mapping[str, MemoryKind]) -> MemoryKind:
    """Return the memory of a buffer in llama.cpp's log: as ggml reports, or that of the device whose name starts the
    buffer's.

    Names without a buffer type of their own are those of mapped files (`CPU_Mapped`), of repacked weights
    (`CPU_REPACK`, `AMX`), of rows over several GPUs (`CUDA_Split`), and of all GPUs with `-sm tensor` (`Meta()`).
    """
    if name.startswith("Meta("):
        return MemoryKind.GPU
    if name in places:
        return places[name]
    beginnings = [
        known for known in places if name.startswith((f"{known}_", known.rstrip("0123456789") + "_Split"))
    ]
    return places[max(beginnings, key=len)] if beginnings else MemoryKind.HOST


def build_commit(library: Path) -> str:
    """Return the short hash that ggml was built from, `0c1e570`; empty if the build does not know it."""
    commit = ctypes.CDLL(str(library)).ggml_commit
    commit.restype = ctypes.c_char_p
    text = (commit() or b"").decode(errors="replace")
    return "" if text == "unknown" else text


_TYPES = {
    "pointer": ctypes.c_void_p, "name": ctypes.c_char_p, "size": ctypes.c_size_t, "int": ctypes.c_int,
    "bool": ctypes.c_bool, "void": None, "props": ctypes.POINTER(Properties), "&size": ctypes.POINTER(ctypes.c_size_t),
}  # fmt: skip
_FUNCTIONS = """
size    ggml_backend_dev_count
pointer ggml_backend_dev_get size
int     ggml_backend_dev_type pointer
name    ggml_backend_dev_name pointer
name    ggml_backend_dev_description pointer
pointer ggml_backend_dev_buffer_type pointer
pointer ggml_backend_dev_host_buffer_type pointer
pointer ggml_backend_dev_backend_reg pointer
void    ggml_backend_dev_get_props pointer props
void    ggml_backend_dev_memory pointer &size &size
pointer ggml_backend_reg_by_name name
name    ggml_backend_reg_name pointer
size    ggml_backend_reg_count
pointer ggml_backend_reg_get size
pointer ggml_backend_reg_get_proc_address pointer name
void    ggml_backend_register pointer
name    ggml_backend_buft_name pointer
bool    ggml_backend_buft_is_host pointer
pointer ggml_backend_buft_alloc_buffer pointer size
size    ggml_backend_buft_get_max_size pointer
pointer ggml_backend_cpu_buffer_type
size    ggml_tensor_overhead
size    ggml_nbytes pointer
name    ggml_op_name int
"""
"""Functions of ggml that ggbench calls: what each returns and takes."""


def _open(library: Path) -> ctypes.CDLL:
    ggml = ctypes.CDLL(str(library))
    for line in _FUNCTIONS.split("\n")[1:-1]:
        result, name, *arguments = line.split()
        function: Any = getattr(ggml, name)
        function.restype, function.argtypes = _TYPES[result], [_TYPES[each] for each in arguments]
    return ggml


class NoRpc(Exception):
    """llama.cpp was built without RPC."""


def add_servers(library: Path, servers: Sequence[str]) -> None:
    """Register the devices of servers, in order. Raises NoRpc. llama.cpp aborts if one does not answer."""
    if not servers:
        return
    ggml = _open(library)
    registry = ggml.ggml_backend_reg_by_name(b"RPC")
    if not registry:
        raise NoRpc
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
    add_server = prototype(ggml.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_rpc_add_server"))
    for server in servers:
        ggml.ggml_backend_register(add_server(server.encode()))
