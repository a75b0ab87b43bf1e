"""Twins of a few layers of a model, from whose times the model's own are extrapolated.

They are timed in turn, so that a slowdown of the machine affects all of them: each in a worker of its own, or all in
one for RPC servers, which serve one client at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.contract import EngineConfig, Source, Workload
from ggbench.engines.endings import Completed, Ending, drained
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.record import ForecastTwin
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_of
from ggbench.gguf_file.twin_writer import write_twin
from ggbench.machine.host import describe_cpu
from ggbench.runs.progress import Measuring, Progress, Working
from ggbench.sizing.layer_sample import step_cost, twin_layers
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.runs.session import Session


def plan_twins(model: ModelFile, setup: LlamaConfig) -> list[ForecastTwin]:
    """Return the twins to time, the one with fewest layers first, or a single one of all layers.

    Raises Unsupported like `step_cost`.
    """
    chosen = twin_layers(model, describe_cpu().last_level_cache_bytes)
    return [
        ForecastTwin(number, layers, step_cost(model, layers, setup.type_k, setup.type_v))
        for number, layers in enumerate(chosen)
    ]


def planned_files(model: ModelFile, twins: Sequence[ForecastTwin]) -> list[ModelFile]:
    """Return the files to write. Raises Unsupported like `twin_of`."""
    n_layer = model.n_layer - model.n_layer_nextn
    return [twin_of(model, model.name, None if len(twin.layers) == n_layer else twin.layers) for twin in twins]


def write_twins(files: Sequence[ModelFile], folder: Path) -> Generator[Progress, None, list[Path]]:
    """Write twins to a temporary folder, and return their paths. Raises like `write_twin`."""
    paths = [folder / f"twin-{number}.gguf" for number in range(len(files))]
    for file, path in zip(files, paths, strict=True):
        yield Working("write", 0, file.file_bytes, counted(file.n_layer, "layer"))
        write_twin(file, path, is_kept=False)
    return paths


class TwinWorkers:
    """Workers for some files: the first in the session's, each other one in its own unless all share one."""

    def __init__(self, session: Session, paths: Sequence[Path]) -> None:
        self._session = session
        self._sources = [Source(path) for path in paths]
        self.shares_one = bool(LlamaConfig.of(session.setup).rpc_servers)
        n_own = 0 if self.shares_one else len(paths) - 1
        self._own = [session.context.launch(session.setup, session.cancel) for _ in range(n_own)]
        self._setup: EngineConfig = session.setup
        self._open_number = 0

    def open(self, setup: EngineConfig) -> Measuring[Ending]:
        """Open every file that has its own worker, and record the memory of the first."""
        self._setup, self._open_number = setup, 0
        first, *others = self._sources
        ending = yield from self._session.open(setup, first.path)
        for engine, source in zip(self._own, others, strict=False):
            if isinstance(ending, Completed):
                ending = drained(engine.open(source, setup))[1]
        return ending

    def run(self, number: int, workload: Workload) -> tuple[list[object], Ending]:
        """Return the events of a workload with one of the files, and how it ended; opens it if another one is open."""
        engine = self._session.engine
        if number and not self.shares_one:
            engine = self._own[number - 1]
        elif number != self._open_number:
            opened = drained(engine.open(self._sources[number], self._setup))[1]
            if not isinstance(opened, Completed):
                return [], opened
            self._open_number = number
        return drained(engine.run(workload))

    def close(self) -> None:
        for engine in self._own:
            engine.close()
