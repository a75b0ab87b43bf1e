"""Described devices, which this machine need not have: ggml devices made of callbacks, for dry runs of llama.cpp's
allocator.

llama.cpp splits a model over them, builds its graphs and sizes their buffers as on real ones, but cannot compute. What
each backend supports, and what its kernels reserve, is in `backend_rules`.

The structures are those of ggml-backend-impl.h, version 2; they are not a public interface. llama.cpp's own
`llama-fit-params --fit-print on` cannot stand in for them: it sizes what a model takes on the devices that are here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from ggbench.engines.contract import DescribedDevice
from ggbench.engines.llama.backend_rules import BACKENDS, Backend, Tensor
from ggbench.engines.llama.ggml_devices import API_VERSION, GPU, Capabilities, Properties

_ALIGNMENT = 128
"""CUDA's alignment, which changes a graph's buffers by kilobytes."""
_OFFLOAD_MIN_BATCH = 32
"""Minimum batch, in tokens, for which a GPU computes with weights in main memory, by copying them.

Source: GGML_OP_OFFLOAD_MIN_BATCH of ggml's backends.
"""


def _structure(name: str, fields: dict[str, Any] | str) -> type[ctypes.Structure]:
    """Return a structure with these fields; bare names are pointers."""
    typed = dict.fromkeys(fields.split(), c_void_p) if isinstance(fields, str) else fields
    return type(name, (ctypes.Structure,), {"_fields_": list(typed.items())})


_BufferTypeI = _structure(
    "ggml_backend_buffer_type_i", "get_name alloc_buffer get_alignment get_max_size get_alloc_size is_host"
)
_BufferType = _structure(
    "ggml_backend_buffer_type", {"iface": _BufferTypeI, "device": c_void_p, "context": c_void_p}
)
_BufferI = _structure(
    "ggml_backend_buffer_i",
    "free_buffer get_base init_tensor memset_tensor set_tensor get_tensor set_tensor_2d get_tensor_2d cpy_tensor clear "
    "reset",
)
_Buffer = _structure("ggml_backend_buffer", {"iface": _BufferI, "buft": c_void_p})
"""How a buffer begins."""
_DeviceI = _structure(
    "ggml_backend_device_i",
    "get_name get_description get_memory get_type get_props init_backend get_buffer_type get_host_buffer_type "
    "buffer_from_host_ptr supports_op supports_buft offload_op event_new event_free event_synchronize",
)
_Device = _structure("ggml_backend_device", {"iface": _DeviceI, "reg": c_void_p, "context": c_void_p})
_RegistryI = _structure("ggml_backend_reg_i", "get_name get_device_count get_device get_proc_address")
_Registry = _structure("ggml_backend_reg", {"api_version": c_int, "iface": _RegistryI, "context": c_void_p})
_BackendI = _structure(
    "ggml_backend_i",
    "get_name free set_tensor_async get_tensor_async set_tensor_2d_async get_tensor_2d_async cpy_tensor_async "
    "synchronize graph_plan_create graph_plan_free graph_plan_update graph_plan_compute graph_compute event_record "
    "event_wait graph_optimize",
)
_Backend = _structure(
    "ggml_backend", {"guid": c_void_p, "iface": _BackendI, "device": c_void_p, "context": c_void_p}
)


class _Operations(dict[int, str]):
    """ggml's name of each operation by its number, and of that of a tensor."""

    def __init__(self, ggml: ctypes.CDLL) -> None:
        self._ggml = ggml

    def __missing__(self, number: int) -> str:
        self[number] = name = self._ggml.ggml_op_name(number).decode()
        return str(name)


class DescribedDevices:
    """Keeps the devices alive, as ggml refers to them until the process ends."""

    def __init__(self, ggml: ctypes.CDLL, described: Sequence[DescribedDevice]) -> None:
        """`ggml` is `GgmlDevices.ggml`."""
        self._ggml = ggml
        self._kept: list[object] = []
        self._cpu_buffer_type = _BufferType.from_address(ggml.ggml_backend_cpu_buffer_type())
        self._ops = _Operations(ggml)
        self.unsupported: set[str] = set()
        """The operations that a device was asked for and has no kernel for, by ggml's names."""
        self.handles = tuple(self._device(index, each) for index, each in enumerate(described))
        """The `ggml_backend_dev_t` of each device."""
        types = map(ggml.ggml_backend_dev_buffer_type, self.handles)
        self.buffer_types = {each.name: int(handle) for each, handle in zip(described, types, strict=True)}
        """ggml's handle of each device's buffer type, by name."""

    def _device(self, index: int, described: DescribedDevice) -> int:
        device, buffer_type = self._new(_Device), self._new(_BufferType)
        handle, buffer_handle = ctypes.addressof(device), ctypes.addressof(buffer_type)
        name, text = described.name.encode(), self._text(described.name)
        memory_bytes, rules = described.memory_bytes, BACKENDS.get(described.backend, Backend({}, {}))
        # ggml asks about tens of thousands of tensors, so these are looked up once, and most of a tensor is not read
        ops, op_at, offset, n_bytes_of = self._ops, c_int.from_address, Tensor.op.offset, self._ggml.ggml_nbytes

        def get_name(_: int) -> int:
            return text

        clear = self._function(None, [c_void_p, ctypes.c_uint8], lambda *_: None)

        def allocate(_: int, size: int) -> int:
            # in a dry run only the states of recurrent layers are allocated, in main memory, which is less aligned
            padded = size and size + _ALIGNMENT
            address = self._ggml.ggml_backend_buft_alloc_buffer(ctypes.addressof(self._cpu_buffer_type), padded)
            buffer = _Buffer.from_address(address)
            buffer.buft = buffer_handle
            buffer.iface.clear = clear  # which would take their pages: gigabytes for several slots with MTP
            return int(address)

        def get_memory(_: int, free: Any, total: Any) -> None:  # noqa: ANN401 - pointers of ctypes
            free[0] = total[0] = memory_bytes

        def get_props(_: int, props: Any) -> None:  # noqa: ANN401
            found = props[0]
            found.name = found.description = name
            found.memory_free = found.memory_total = memory_bytes
            found.type, found.device_id = GPU, None
            # as with every backend, so that llama.cpp overlaps a prompt's batches on several devices, with more buffers
            found.caps = Capabilities(True, False, False, True, True)

        def supports_op(_: int, address: int) -> bool:
            op = ops[op_at(address + offset).value]
            is_supported = op not in rules.supports or rules.supports[op](Tensor.from_address(address))
            if not is_supported:
                self.unsupported.add(op)
            return is_supported

        def get_alloc_size(_: int, address: int) -> int:
            n_bytes: int = n_bytes_of(address)
            rule = rules.size.get(ops[op_at(address + offset).value])
            return n_bytes if rule is None else rule(Tensor.from_address(address), n_bytes)

        def init_backend(_: int, __: object) -> int:
            backend, guid = self._new(_Backend), (ctypes.c_uint8 * 16)(index + 1)
            self._kept.append(guid)
            backend.guid, backend.device = ctypes.addressof(guid), handle
            backend.iface.get_name = device.iface.get_name
            backend.iface.free = self._function(None, [c_void_p], lambda _: None)
            return ctypes.addressof(backend)

        buffer_type.device = handle
        buffer_type.iface = _BufferTypeI(
            get_name=self._function(c_void_p, [c_void_p], get_name),
            alloc_buffer=self._function(c_void_p, [c_void_p, c_size_t], allocate),
            get_alignment=self._function(c_size_t, [c_void_p], lambda _: _ALIGNMENT),
        )
        if rules.size:
            buffer_type.iface.get_alloc_size = self._function(c_size_t, [c_void_p, c_void_p], get_alloc_size)
        device.reg = self._registry(described.backend)
        device.iface = _DeviceI(
            get_name=self._function(c_void_p, [c_void_p], get_name),
            get_description=self._function(c_void_p, [c_void_p], get_name),
            get_memory=self._function(None, [c_void_p, POINTER(c_size_t), POINTER(c_size_t)], get_memory),
            get_type=self._function(c_int, [c_void_p], lambda _: GPU),
            get_props=self._function(None, [c_void_p, POINTER(Properties)], get_props),
            init_backend=self._function(c_void_p, [c_void_p, c_char_p], init_backend),
            get_buffer_type=self._function(c_void_p, [c_void_p], lambda _: buffer_handle),
            supports_op=self._cpu_buffer_type.iface.is_host,  # of main memory: always true
            supports_buft=self._function(c_bool, [c_void_p, c_void_p], lambda _, asked: asked == buffer_handle),
        )
        if rules.supports:
            device.iface.supports_op = self._function(c_bool, [c_void_p, c_void_p], supports_op)
        if described.backend != "RPC":
            device.iface.offload_op = self._function(c_bool, [c_void_p, c_void_p], self._is_offloaded)
        return handle

    def _registry(self, backend: str) -> int:
        registry, name = self._new(_Registry), self._text(backend)
        registry.api_version = API_VERSION
        registry.iface.get_name = self._function(c_void_p, [c_void_p], lambda _: name)
        return ctypes.addressof(registry)

    def _is_offloaded(self, _: int, address: int) -> bool:
        """Return whether the batch is large enough; source: `get_op_batch_size` of ggml-cuda.cu."""
        tensor = Tensor.from_address(address)
        match self._ops[tensor.op]:
            case "GET_ROWS":
                return False
            case "MUL_MAT":
                n_tokens = tensor.ne[1]
            case "MUL_MAT_ID" | "ROPE" | "ROPE_BACK":
                n_tokens = tensor.ne[2]
            case _:
                n_tokens = tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
        return bool(n_tokens >= _OFFLOAD_MIN_BATCH)

    def _new(self, kind: type[ctypes.Structure]) -> Any:  # noqa: ANN401 - its fields are made at run time
        made = kind()
        self._kept.append(made)
        return made

    def _text(self, text: str) -> int:
        buffer = ctypes.create_string_buffer(text.encode())
        self._kept.append(buffer)
        return ctypes.addressof(buffer)

    def _function(self, result: Any, arguments: Sequence[Any], function: Any) -> c_void_p:  # noqa: ANN401
        made = ctypes.CFUNCTYPE(result, *arguments)(function)
        self._kept.append(made)
        return ctypes.cast(made, c_void_p)
