"""The Library's worker threads: whatever may take a while, so that keys are always answered at once.

Each worker ends in a message of `library_messages`; a newer worker of the same group replaces the older one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from textual import work
from textual.screen import Screen
from textual.worker import get_current_worker

from ggbench.errors import GgbenchError
from ggbench.tui.host import Host, host_of
from ggbench.tui.library_quants import latest_decodes
from ggbench.tui.screens.library_messages import (
    MachineRead,
    ModelsRead,
    QuantPlanned,
    ResultsRead,
    SearchFinished,
    TargetsFound,
    Task,
    TaskFailed,
)

if TYPE_CHECKING:
    from ggbench.catalog.models import Catalog
    from ggbench.records.plan import Budget
    from ggbench.records.setup import LlamaSetup
    from ggbench.tui.library_choice import Selection
    from ggbench.tui.library_models import ModelEntry
    from ggbench.tui.planner import Planner
    from ggbench.tui.run_requests import RunRequest
    from ggbench.tui.services import Services

_MAX_FOUND = 20


class LibraryWorkers(Screen[None]):
    """The part of the Library screen that runs in threads."""

    @property
    def _services(self) -> Services:
        return self._host.services

    @property
    def _host(self) -> Host:
        return host_of(self)

    @contextmanager
    def _reporting(self, task: Task, request: int = 0) -> Iterator[None]:
        """Report any error in a thread on the screen."""
        try:
            yield
        except GgbenchError as error:
            self.post_message(TaskFailed(task, error, request))
        except Exception as error:
            unexpected = GgbenchError(f"unexpected {type(error).__name__}: {error}", "please report it")
            self.post_message(TaskFailed(task, unexpected, request))

    @work(thread=True, exclusive=True, group="models")
    def _read_models(self, *, at_first: bool = False) -> None:
        services = self._services
        with self._reporting("models"):
            catalog = services.load_catalog()
            if at_first:
                self.post_message(ModelsRead(catalog, (), is_complete=False))
            self.post_message(ModelsRead(catalog, services.local_models(), is_complete=True))

    @work(thread=True, exclusive=True, group="machine")
    def _read_machine(self, planner: Planner | None) -> None:
        """Read memory and devices; make a planner if there is none yet."""
        services = self._services
        with self._reporting("machine"):
            planner = planner or services.make_planner()
            self.post_message(MachineRead(planner, services.machine_budget(), services.read_machine()))

    @work(thread=True, exclusive=True, group="results")
    def _read_results(self) -> None:
        from ggbench.tui.stored_runs import finished_runs

        with self._reporting("results"), self._services.open_store() as store:
            self.post_message(ResultsRead(latest_decodes(finished_runs(store))))

    @work(thread=True, exclusive=True, group="search")
    def _search(self, text: str) -> None:
        from ggbench.hub.listing import search_repos

        with self._reporting("search"):
            self.post_message(SearchFinished(text, search_repos(self._services.hub, text, _MAX_FOUND)))

    @work(thread=True, exclusive=True, group="plan")
    def _plan(
        self, request: int, planner: Planner, entry: ModelEntry, budget: Budget, setup: LlamaSetup, first: str | None
    ) -> None:
        """Plan the quant named `first`, then the others; stop as soon as another plan is requested."""
        worker = get_current_worker()
        with (
            self._reporting("plan", request),
            closing(planner.rows(entry.model, entry.quants, budget, setup, first)) as rows,
        ):
            for quant in rows:
                if worker.is_cancelled:
                    return
                self.post_message(QuantPlanned(request, quant))
            self.post_message(QuantPlanned(request, None))

    @work(thread=True, exclusive=True, group="start")
    def _find_targets(self, request: RunRequest | None, selection: Selection, catalog: Catalog | None) -> None:
        """Resolve models and quants to targets; without a request, only those that must be downloaded."""
        from ggbench.catalog.selector import resolve

        with self._reporting("start"):
            hub = self._services.hub
            found = [resolve(model, names, hub=hub, catalog=catalog) for model, names in selection]
            targets = [target for each in found for target in each if request is not None or target.download_bytes]
            self.post_message(TargetsFound(request, targets, sum(target.download_bytes for target in targets)))
