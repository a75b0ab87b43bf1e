"""GPU options of a command line, compared with the GPUs that there are.

llama.cpp's own tools warn of options that are ignored where it can use no GPU; its library says nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.text import in_words
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.commands.output import Output
    from ggbench.engines.memory import Memory

_OPTIONS = {
    "n_gpu_layers": "--n-gpu-layers",
    "main_gpu": "--main-gpu",
    "tensor_split": "--tensor-split",
    "split_mode": "--split-mode",
}


def check_main_gpu(setup: LlamaConfig) -> None:
    """Raise UsageError for a `--main-gpu` above the GPUs that CUDA counts here; other backends count their own."""
    if setup.main_gpu is None or not setup.n_gpu_layers or not _is_built_for_cuda():
        return
    from ggbench.machine.gpus import cuda_devices, list_gpus

    n_gpus = len(cuda_devices(list_gpus()))
    if 0 < n_gpus <= setup.main_gpu:
        there = "there is 1, number 0" if n_gpus == 1 else f"there are {format_count(n_gpus)}, counted from 0"
        raise UsageError(f"there is no GPU {setup.main_gpu} here", there)


def _is_built_for_cuda() -> bool:
    package = importlib.util.find_spec("llama_cpp")
    return bool(package and package.origin and any((Path(package.origin).parent / "lib").glob("libggml-cuda*")))


class IgnoredGpuOptions:
    """A notice about GPU options that have no effect, as soon as a loaded model shows it; once for a command."""

    def __init__(self, output: Output) -> None:
        self._output = output
        given = click.get_current_context().get_parameter_source
        self._names = [option for name, option in _OPTIONS.items() if given(name) is ParameterSource.COMMANDLINE]

    def look(self, setup: EngineConfig, memory: Memory) -> None:
        """Print the notice where a model with layers to offload lies in main memory with all of its buffers."""
        if not memory.buffers or not isinstance(setup, LlamaConfig) or not setup.n_gpu_layers:
            return
        if all(each.is_host for each in memory.buffers):
            self.report(
                "llama.cpp can use no GPU here",
                'with an NVIDIA GPU in this machine: CMAKE_ARGS="-DGGML_CUDA=on" ./scripts/setup',
            )
        self._names = []

    def report(self, reason: str, hint: str) -> None:
        """Print which of the options given have no effect, and why."""
        if self._names:
            verb = "is" if len(self._names) == 1 else "are"
            self._output.notice(f"{reason}, so {in_words(self._names)} {verb} ignored; {hint}")
