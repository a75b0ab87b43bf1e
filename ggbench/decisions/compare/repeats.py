"""Runs that repeat one another, of one file, loaded and measured alike, and how far their metrics differ by load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.runs.summary import QuantSummary
from ggbench.show.metric import Metric
from ggbench.stats.samples import ASSUMED_SIGMA, DISTURBED_SIGMA, LoadSpread, Repeat, is_disturbed, load_spread

_NEWEST = 12
"""Runs of each setting: a machine of last year need not be as noisy today."""

Repeats = tuple[tuple[Run, ...], ...]
"""Groups of two runs or more that differ in nothing but when they ran."""


def setting_of(run: Run) -> str:
    """Return a key that is equal for runs that repeat one another."""
    head, subject = run.head, run.subject
    file = subject.header_sha256 or subject.file, subject.file_bytes, subject.quant
    environment = head.environment
    versions = environment and (
        environment.llama_cpp,
        environment.llama_cpp_python,
        environment.transformers,
        environment.server,
        environment.system_info,
    )
    return repr((machine_of(run), head.kind, file, head.setup, head.settings, versions))


def machine_of(run: Run) -> str:
    """Return a key that is equal for runs of one machine and one engine."""
    environment = run.head.environment
    machine = environment and (environment.cpu, environment.n_cores, tuple(gpu.name for gpu in environment.gpus))
    return repr((run.head.setup.engine, machine))


def stored_repeats(store: Store) -> Repeats:
    """Return the completed runs of a store that were repeated. Raises StoreError where it cannot be read.

    Imported runs are left out: what else differed between them is unknown.
    """
    runs = []
    for stored in store.list_runs(state=Outcome.COMPLETED):
        if not stored.is_imported:
            with contextlib.suppress(StoreError):  # written by another ggbench
                runs.append(listed_run(stored))
    return repeats_among(runs)


def repeats_among(runs: Iterable[Run]) -> Repeats:
    """Return the groups among runs, which come newest first; of each setting at most the newest twelve."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting_of(run), []).append(run)
    return tuple(tuple(group[:_NEWEST]) for group in groups.values() if len(group) > 1)


_ENOUGH = 5
"""Repeats of a run's own setting from which on others of its machine say nothing more."""


class RunSpreads:
    """The spread between loads of any metric of any run, each computed once."""

    def __init__(self, repeats: Repeats = ()) -> None:
        """`repeats` as `stored_repeats` gives them; without any, a spread is assumed."""
        self._groups = [(machine_of(group[0]), setting_of(group[0]), group) for group in repeats]
        self._known: dict[object, LoadSpread] = {}

    def of(self, metric: Metric, summary: QuantSummary) -> LoadSpread:
        """Return the spread of a metric: of the run's own repeats if there are enough, else of all of its machine.

        Of a run that was not steady, runs count that were not steady either.
        """
        settings = frozenset(map(setting_of, summary.runs))
        is_steady = not summary.unsteady
        key = metric.key, settings, is_steady
        if key not in self._known:
            machines = {machine_of(run) for run in summary.runs}
            of_machine = [(setting, group) for machine, setting, group in self._groups if machine in machines]
            own = _repeats(metric, [group for setting, group in of_machine if setting in settings], is_steady)
            if sum(len(group) - 1 for group in own) < _ENOUGH:
                own = _repeats(metric, [group for _, group in of_machine], is_steady)
            self._known[key] = load_spread(own, ASSUMED_SIGMA if is_steady else DISTURBED_SIGMA)
        return self._known[key]

    def is_disturbed(self, metric: Metric, summary: QuantSummary) -> bool:
        """Return whether this value of a run lies far from all of the run's own repeats."""
        setting, value = setting_of(summary.run), metric.value(summary)
        if value is None or value <= 0:
            return False
        repeats = [run for _, of, group in self._groups if of == setting for run in group if run != summary.run]
        began = summary.run.head.started_at
        earlier, later = (
            [
                repeat.value
                for run in sorted(repeats, key=lambda run: run.head.started_at)
                if (run.head.started_at > began) is is_later and (repeat := _repeat(metric, run))
            ]
            for is_later in (False, True)
        )
        return is_disturbed(value, earlier, later)


def _repeats(metric: Metric, groups: Sequence[Sequence[Run]], is_steady: bool) -> list[list[Repeat]]:
    """The groups of which two runs or more have the metric."""
    found = []
    for group in groups:
        repeats = [
            repeat
            for run in group
            if not (is_steady and QuantSummary.of([run]).unsteady) and (repeat := _repeat(metric, run))
        ]
        if len(repeats) > 1:
            found.append(repeats)
    return found


def _repeat(metric: Metric, run: Run) -> Repeat | None:
    summary = QuantSummary.of([run])
    value = metric.value(summary)
    if value is None or value <= 0:
        return None
    return Repeat(value, metric.interval(summary) if metric.interval else None)
