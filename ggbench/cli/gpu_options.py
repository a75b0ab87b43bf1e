"""What a command line says of GPUs, held against those that there are.

llama.cpp's own tools warn of options that are ignored where it can use no GPU; its library says nothing.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ggbench.errors import UsageError
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.cli.output import Output
    from ggbench.engine import protocol
    from ggbench.engine.endings import Ending
    from ggbench.engine.process import Engine
    from ggbench.experiments.rig import Rig
    from ggbench.records.setup import LlamaSetup

_OPTIONS = {"n_gpu_layers": "--n-gpu-layers", "main_gpu": "--main-gpu", "tensor_split": "--tensor-split"}


def check_main_gpu(config: LlamaSetup) -> None:
    """Raise UsageError for a `--main-gpu` above the GPUs that CUDA counts here; what other backends count is theirs."""
    if config.main_gpu is None or not config.n_gpu_layers or not _is_built_for_cuda():
        return
    from ggbench.machine.gpus import cuda_devices, list_gpus

    n_gpus = len(cuda_devices(list_gpus()))
    if 0 < n_gpus <= config.main_gpu:
        there = "there is 1, number 0" if n_gpus == 1 else f"there are {format_count(n_gpus)}, counted from 0"
        raise UsageError(f"there is no GPU {config.main_gpu} here", there)


def _is_built_for_cuda() -> bool:
    package = importlib.util.find_spec("llama_cpp")
    return bool(package and package.origin and any((Path(package.origin).parent / "lib").glob("libggml-cuda*")))


def tell_ignored_options(rig: Rig, config: LlamaSetup, output: Output) -> Rig:
    """The same rig; once its first model is loaded, options that were given for a GPU that is not there are told of."""
    names = _given_options()
    if not names or not config.n_gpu_layers:
        return rig
    watch = _Watch(names, output)

    def launch(cancel: threading.Event) -> Engine:
        return _WatchedEngine(rig.launch(cancel), watch)

    return replace(rig, launch=launch)


def _given_options() -> tuple[str, ...]:
    """Those that stand on the command line of the command that runs."""
    ctx = click.get_current_context()
    return tuple(
        option for name, option in _OPTIONS.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


@dataclass
class _Watch:
    """Tells once for a command, whatever number of workers it starts."""

    names: tuple[str, ...]
    output: Output
    has_seen_load: bool = False
    log: list[str] = field(default_factory=list)

    def note(self, item: protocol.Event | Ending) -> None:
        """Take in what a worker tells, up to the end of the first load."""
        from ggbench.engine import protocol
        from ggbench.engine.logs import parse_allocations

        match item:
            case protocol.Log():
                self.log.append(item.text)
            case protocol.ModelLoaded():
                self.has_seen_load = True
                buffers = parse_allocations(self.log).buffers
                if buffers and all(each.is_host for each in buffers):
                    self._tell()

    def _tell(self) -> None:
        *others, last = self.names
        what = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        self.output.notice(
            f"llama.cpp can use no GPU here, so {what} ignored; with a GPU in this machine, see CUDA in the README"
        )


class _WatchedEngine:
    def __init__(self, engine: Engine, watch: _Watch) -> None:
        self._engine = engine
        self._watch = watch

    def call(self, request: protocol.Request) -> Iterator[protocol.Event | Ending]:
        """As the engine's own."""
        for item in self._engine.call(request):
            if not self._watch.has_seen_load:
                self._watch.note(item)
            yield item

    def close(self) -> None:
        """As the engine's own."""
        self._engine.close()
