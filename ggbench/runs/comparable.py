"""Which stored runs can be compared: those of one machine, of one setting, of one file."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.build import gpu_backends
from ggbench.errors import StoreError
from ggbench.machine.environment import gpus_of
from ggbench.machine.host import describe_cpu
from ggbench.machine.records import Environment
from ggbench.models.subject import long_name, model_name
from ggbench.record import Record
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.facts import RunFacts
from ggbench.runs.store.runs import StoredRun
from ggbench.runs.stored import listed_run, read_run


class ThisMachine(Record):
    """Conditions that must be equal for the speed of a run to apply now."""

    cpu: str
    n_cores: int
    gpus: tuple[str, ...]
    llama_cpp_python: str
    threads: int

    @classmethod
    def describe(cls) -> ThisMachine:
        cpu = describe_cpu()
        return cls(
            cpu.name,
            cpu.n_cores,
            tuple(gpu.name for gpu in gpus_of(gpu_backends())),
            _binding_version(),
            cpu.n_performance_cores,
        )

    @property
    def key(self) -> str:
        """Equals `machine_key` of the runs made here."""
        return repr((self.cpu, self.n_cores, self.gpus))

    def made(self, environment: Environment | None) -> bool:
        """Return whether a run was made here, with the same cores, GPUs and llama.cpp; false for an imported run."""
        return (environment is not None and environment.imported is None) and (
            machine_key(environment),
            environment.llama_cpp_python,
        ) == (self.key, self.llama_cpp_python)

    def decisive(self, setup: EngineConfig, n_layer: int | None) -> EngineConfig | None:
        """Return the parts of a setup that affect the speed of a model of `n_layer` layers; None for another engine."""
        return setup.speed_part(self.threads, n_layer, has_gpu=bool(self.gpus))


@functools.cache
def _binding_version() -> str:
    return importlib.metadata.version("llama_cpp_python")


def machine_key(environment: Environment) -> str:
    """Return a key that is equal for runs of one machine."""
    return repr((environment.cpu, environment.n_cores, tuple(gpu.name for gpu in environment.gpus)))


def is_repeatable(run: Run) -> bool:
    """Return whether a run of the same settings can be measured again, and would differ by its times."""
    experiment = experiment_of(run.head.kind)
    is_own = experiment.request_type is type(run.head.settings) and not run.is_imported
    return experiment.measures_speed and is_own


def setting_of(run: Run) -> str:
    """Return a key that is equal for repeated runs."""
    head, subject, environment = run.head, run.subject, run.environment
    file = subject.header_sha256 or subject.file, subject.shape_key, subject.file_bytes, subject.quant
    names = ("llama_cpp", "llama_cpp_python", "transformers", "server", "system_info", "backends")
    versions = environment and (machine_key(environment), *(getattr(environment, name) for name in names))
    return hashlib.sha256(repr((head.kind, file, head.setup, head.settings, versions)).encode()).hexdigest()


def runs_of_file(store: Store, machine: str, header: str, shape: str) -> list[Run]:
    """Return a machine's completed runs of files with this header or shape, newest first, at most twelve of each
    setting. Raises StoreError.
    """
    update_facts(store)
    groups = store.facts.of_file(machine, header, shape)
    return list(_runs(store, sorted((run_id for group in groups for run_id in group), reverse=True)))


def runs_with_rates(store: Store, machine: str) -> Iterator[Run]:
    """Yield the newest steady run of each setting of a machine from which the rates of reading memory follow.

    The newest comes first. Raises StoreError.
    """
    update_facts(store)
    return _runs(store, store.facts.with_rates(machine))


def runs_with_loss(store: Store, headers: Collection[str]) -> Iterator[Run]:
    """Yield the newest run of each loss measured of files with these headers, newest first. Raises StoreError."""
    update_facts(store)
    return _runs(store, store.facts.with_loss(headers))


def copies_of(store: Store, head: RunHead, content_sha256: str) -> Iterator[StoredRun]:
    """Yield the runs imported with this content, then those that may be the same run. Raises StoreError.

    Runs added since `update_facts` are left out.
    """
    return store.load_runs(
        store.facts.copies(_origin(head.kind, head.started_at, head.subject.quant), content_sha256)
    )


def update_facts(store: Store) -> None:
    """Derive the facts of runs that have none. Raises StoreError."""
    store.facts.update(_facts_of)


def _origin(kind: str, started_at: str, quant: str) -> str:
    return f"{kind} {started_at} {quant}"


def _runs(store: Store, run_ids: Iterable[int]) -> Iterator[Run]:
    for stored in store.load_runs(tuple(run_ids)):
        with contextlib.suppress(StoreError):  # written by another ggbench
            yield read_run(store, stored)


def _facts_of(stored: StoredRun) -> RunFacts:
    environment = stored.environment
    imported = None if environment is None else environment.imported
    copied = RunFacts(
        stored.run_id,
        origin=_origin(stored.kind, stored.started_at, stored.subject.quant),
        content=None if imported is None else imported.content_sha256,
        name=model_name(stored.subject),
        long_name=long_name(stored.subject),
    )
    try:
        run = listed_run(stored)
        experiment = experiment_of(stored.kind)
    except StoreError:  # written by another ggbench
        return copied
    found = replace(
        copied,
        setting=setting_of(run) if run.is_complete else None,
        header=stored.subject.header_sha256 or None,
        shape=stored.subject.shape_key or None,
        loss=_loss_key(experiment.loss_of(run)),
    )
    if environment is None or not run.is_complete or run.is_imported:
        return found
    speed = experiment.speed_of(run)
    has_rates = speed is not None and speed.rates is not None and speed.is_steady
    return replace(found, machine=machine_key(environment), has_rates=has_rates)


def _loss_key(loss: MeasuredLoss | None) -> str | None:
    if loss is None:
        return None
    return repr((loss.cache, loss.base_header, loss.base_quant, loss.base_cache, loss.text))
