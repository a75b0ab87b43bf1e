"""An app with the Run screen alone, a real engine behind it, and one long decode: `run_app.py FILE`, in a terminal."""

import sys
from dataclasses import dataclass

from textual.app import App

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import MachineReading
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve
from ggbench.runs.experiment import Experiment, Job, experiment_of
from ggbench.runs.session import RunContext, run_context
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import Bandwidth
from ggbench.tui.run_queue import RunQueue
from ggbench.tui.screens.run import RunScreen


@dataclass(frozen=True, slots=True)
class RealServices:
    reader: MachineReader

    def open_store(self) -> Store:
        return Store.open()

    def run_context(self, store: Store | None, experiment: Experiment) -> RunContext:
        return run_context(store, given_bandwidth=Bandwidth(20e9, "given in a test"))

    def read_machine(self) -> MachineReading:
        return self.reader.read()


class RunApp(App[None]):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.services = RealServices(MachineReader())
        self.run_queue = RunQueue(self.services.open_store, self.services.run_context, lambda: None)
        self._path = path

    def on_mount(self) -> None:
        self.push_screen(RunScreen())
        (target,) = resolve(parse_model(self._path))
        self.run_queue.add([Job(experiment_of("decode"), target, LlamaConfig(threads=1), DecodeSettings(100_000))])

    def on_unmount(self) -> None:
        self.run_queue.close()


if __name__ == "__main__":
    RunApp(sys.argv[1]).run()
