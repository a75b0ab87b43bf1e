"""Which stored runs say how fast this machine is under a given setup."""

from __future__ import annotations

import importlib.metadata

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.gpus import list_gpus
from ggbench.machine.host import default_threads, describe_cpu
from ggbench.machine.records import Environment


class ThisMachine(msgspec.Struct, frozen=True):
    """What a run's environment has to be for its speed to be that of today."""

    cpu: str
    n_cores: int
    gpus: tuple[str, ...]
    llama_cpp_python: str
    threads: int
    """That a setup without a number of threads takes."""

    @classmethod
    def describe(cls) -> ThisMachine:
        """Return this machine and its llama-cpp-python."""
        cpu = describe_cpu()
        return cls(
            cpu.name,
            cpu.n_cores,
            tuple(gpu.name for gpu in list_gpus()),
            importlib.metadata.version("llama_cpp_python"),
            default_threads(cpu),
        )

    def made(self, environment: Environment | None) -> bool:
        """Return whether a run was made here, with as many cores, the same GPUs and the same llama.cpp.

        An imported run never was: another machine may have the same names.
        """
        return (environment is not None and environment.imported is None) and (
            environment.cpu,
            environment.n_cores,
            tuple(gpu.name for gpu in environment.gpus),
            environment.llama_cpp_python,
        ) == (self.cpu, self.n_cores, self.gpus, self.llama_cpp_python)

    def decisive(self, setup: EngineConfig, n_layer: int | None) -> LlamaConfig | None:
        """Return what of a setup decides the speed of a model of `n_layer` layers; None of another engine.

        The length of the context and where its memory is from do not; nor, without a GPU, what goes there.
        """
        if not isinstance(setup, LlamaConfig):
            return None
        same, threads = LlamaConfig(), setup.threads or self.threads
        decisive = replace(
            setup,
            n_ctx=None,
            n_seq_max=same.n_seq_max,
            n_outputs_max=None,
            mmap=same.mmap,
            mlock=same.mlock,
            memory_limit_bytes=None,
            threads=threads,
            threads_batch=setup.threads_batch or threads,
        )
        if not self.gpus and not setup.rpc_servers:
            return without_placement(decisive)
        is_all = n_layer is not None and setup.n_gpu_layers > n_layer
        return replace(decisive, n_gpu_layers=-1) if is_all or setup.n_gpu_layers < 0 else decisive


def without_placement(setup: LlamaConfig) -> LlamaConfig:
    """Return the setup without what says which of a model goes to a GPU."""
    same = LlamaConfig()
    return replace(
        setup,
        n_gpu_layers=same.n_gpu_layers,
        main_gpu=same.main_gpu,
        tensor_split=same.tensor_split,
        split_mode=same.split_mode,
        cpu_moe=same.cpu_moe,
        n_cpu_moe=same.n_cpu_moe,
        override_tensor=same.override_tensor,
        kv_offload=same.kv_offload,
    )
