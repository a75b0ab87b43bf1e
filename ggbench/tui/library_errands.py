"""What the Library has threads do: nothing that may take a while is done where keys are answered.

Each errand ends in a message of `library_news`; one of a kind that is sent later takes the place of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol, cast

from textual import work
from textual.screen import Screen
from textual.worker import get_current_worker

from ggbench.errors import GgbenchError
from ggbench.tui.library_news import (
    Errand,
    ErrandFailed,
    Job,
    MachineRead,
    ModelsRead,
    QuantPlanned,
    ResultsRead,
    Searched,
    TargetsFound,
)
from ggbench.tui.variants import measured_rows

if TYPE_CHECKING:
    from ggbench.catalog.models import Catalog
    from ggbench.plan_records import Budget
    from ggbench.records import LoadConfig
    from ggbench.tui.library_models import ModelEntry
    from ggbench.tui.planner import Planner
    from ggbench.tui.services import Services

Wanted = Sequence[tuple[str, tuple[str, ...]]]
"""Models, each with quants."""

_N_FOUND = 20


class _Host(Protocol):
    """What this screen needs of its app."""

    services: Services
    n_gen: int


class LibraryErrands(Screen[None]):
    """The threads of the Library."""

    @property
    def _services(self) -> Services:
        return self._host.services

    @property
    def _host(self) -> _Host:
        return cast("_Host", self.app)

    @contextmanager
    def _telling(self, errand: Errand, request: int = 0) -> Iterator[None]:
        """What goes wrong in a thread is told on the screen, whatever it is."""
        try:
            yield
        except GgbenchError as error:
            self.post_message(ErrandFailed(errand, error, request))
        except Exception as error:
            told = GgbenchError(f"unexpected, {type(error).__name__}: {error}", "please report it")
            self.post_message(ErrandFailed(errand, told, request))

    @work(thread=True, exclusive=True, group="models")
    def _read_models(self, *, at_first: bool = False) -> None:
        services = self._services
        with self._telling("models"):
            catalog = services.load_catalog()
            if at_first:
                self.post_message(ModelsRead(catalog, (), is_whole=False))
            self.post_message(ModelsRead(catalog, services.local_models(), is_whole=True))

    @work(thread=True, exclusive=True, group="machine")
    def _read_machine(self, planner: Planner | None) -> None:
        """With the planner that there is, else a new one."""
        services = self._services
        with self._telling("machine"):
            planner = planner or services.make_planner()
            self.post_message(MachineRead(planner, services.machine_budget(), services.read_machine()))

    @work(thread=True, exclusive=True, group="results")
    def _read_results(self) -> None:
        with self._telling("results"), self._services.open_store() as store:
            self.post_message(ResultsRead(measured_rows(store.list_runs())))

    @work(thread=True, exclusive=True, group="search")
    def _search(self, text: str) -> None:
        from ggbench.hub.listing import search_repos

        with self._telling("search"):
            self.post_message(Searched(text, search_repos(self._services.hub, text, _N_FOUND)))

    @work(thread=True, exclusive=True, group="plan")
    def _plan(
        self, request: int, planner: Planner, entry: ModelEntry, budget: Budget, config: LoadConfig, first: str | None
    ) -> None:
        """The quant named `first` before the others; left as soon as another plan is asked for."""
        worker = get_current_worker()
        with (
            self._telling("plan", request),
            closing(planner.rows(entry.model, entry.quants, budget, config, first)) as rows,
        ):
            for quant in rows:
                if worker.is_cancelled:
                    return
                self.post_message(QuantPlanned(request, quant))
            self.post_message(QuantPlanned(request, None))

    @work(thread=True, exclusive=True, group="start")
    def _find_targets(self, job: Job, wanted: Wanted, catalog: Catalog | None) -> None:
        """What models and their quants mean; to pull, only what is not here."""
        from ggbench.catalog.selector import resolve

        with self._telling("start"):
            hub = self._services.hub
            found = [resolve(model, names, hub=hub, catalog=catalog) for model, names in wanted]
            targets = [target for each in found for target in each if job != "pull" or target.download_bytes]
            self.post_message(TargetsFound(job, targets, sum(target.download_bytes for target in targets)))
