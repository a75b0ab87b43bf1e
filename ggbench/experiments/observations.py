"""What was seen of one trial so far, kept in memory for its row and in the store against a kill."""

from __future__ import annotations

from collections.abc import Callable

from ggbench.engine import protocol
from ggbench.engine.logs import Allocations, parse_allocations
from ggbench.experiments.sample_log import SampleLog
from ggbench.records import Environment
from ggbench.store.database import Store
from ggbench.store.runs import RunStart


class Observations:
    """Takes in the worker's events; `begin` has to come before anything is kept in the store."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self.has_begun = False
        self.run_id: int | None = None
        """Of the store; None where nothing is kept."""
        self.worker_pid: int | None = None
        self.environment: Environment | None = None
        """None until the worker is ready."""
        self.n_ctx: int | None = None
        """As llama.cpp rounded it; None until there is a context."""
        self.prefill_ns: dict[int, list[int]] = {}
        """Every timed prompt, by its length."""
        self.samples = SampleLog()
        self.peak_bytes: int | None = None
        """Of the worker's resident memory; None where it could not be asked."""
        self._log: list[str] = []

    @property
    def allocations(self) -> Allocations:
        """What llama.cpp's log tells of memory so far."""
        return parse_allocations(self._log)

    def note_worker(self, event: protocol.Ready, describe: Callable[[str, str, str], Environment]) -> None:
        """Keep who measures."""
        self.worker_pid = event.pid
        self.environment = describe(event.llama_cpp_python, event.llama_cpp, event.system_info)

    def begin(self, start: RunStart) -> None:
        """Open a run in the store, so that a kill leaves a trace."""
        self.has_begun = True
        if self._store is not None:
            self.run_id = self._store.begin(start)
            self.samples.keep_in(self._store, self.run_id)

    def note(self, event: protocol.Event) -> None:
        """Take in one event of the worker."""
        match event:
            case protocol.Log():
                self._log.append(event.text)
            case protocol.ContextMade():
                self.n_ctx = event.n_ctx
            case protocol.Prefilled(n_prompt, prefill_ns):
                timings = self.prefill_ns.setdefault(n_prompt, [])
                timings.append(prefill_ns)
                if self._store is not None and self.run_id is not None:
                    self._store.append_prefill(self.run_id, len(timings) - 1, n_prompt, prefill_ns)
            case protocol.Decoded(phase="warmup"):
                if self._store is not None and self.run_id is not None:
                    self._store.append_samples(
                        self.run_id, 0, event.first_position, event.step_ns, event.sample_ns, phase="warmup"
                    )
            case protocol.Decoded():
                self.samples.add(event)
