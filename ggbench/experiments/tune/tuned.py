"""Settings that an earlier search found for this machine, this file and this build of llama.cpp."""

from __future__ import annotations

import contextlib

import msgspec
from msgspec.structs import replace

from ggbench.decisions.this_machine import ThisMachine
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, StoreError, UsageError
from ggbench.experiments.tune.measure import EXPERIMENT
from ggbench.experiments.tune.record import TuneResult, TuneSettings, changes, changes_text, ratio_text
from ggbench.machine.gpus import list_gpus
from ggbench.machine.records import Environment, Gpu
from ggbench.models.selector import Target
from ggbench.runs.experiment import Job
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, StoredRun
from ggbench.runs.stored import read_run
from ggbench.text import plain

_DEFAULTS = LlamaConfig()
_KV = ("type_k", "type_v")


class Tuned(msgspec.Struct, frozen=True):
    """What a search found."""

    run: Run
    stale: tuple[str, ...] = ()
    """What has changed since, each in a few words; empty where it holds."""

    @property
    def result(self) -> TuneResult:
        """Of the search."""
        assert isinstance(self.run.result, TuneResult)
        return self.run.result

    @property
    def changes(self) -> dict[str, object]:
        """What the best settings change of the defaults; nothing where none beats them."""
        best = self.result.best
        return {} if best is None else self.result.changes(best)

    def setup(self, asked: EngineConfig, *, keeps_cache: bool = False) -> EngineConfig:
        """Return a setup with the best settings; what a person set otherwise stays, with `keeps_cache` the KV types."""
        if not isinstance(asked, LlamaConfig):
            return asked
        own = changes(_DEFAULTS, asked)
        found = {
            name: value for name, value in self.changes.items() if name not in own and not (keeps_cache and name in _KV)
        }
        return replace(asked, **found)  # the fields' own values


def find_tuned(store: Store, target: Target) -> Tuned | None:
    """Return the newest search for this file that decided something, one that still holds before a stale one.

    A search counts where the file's header, or the name that it was asked for by, is the same. None where there is
    none. Raises StoreError where results cannot be read.
    """
    header = ""
    with contextlib.suppress(GgbenchError):
        header = target.header().header_sha256
    here, gpus = ThisMachine.describe(), list_gpus()
    stale: Tuned | None = None
    for stored in store.list_runs(kind=EXPERIMENT.kind):
        if stored.state == RUNNING or stored.is_imported or not _is_of(stored, target, header):
            continue
        with contextlib.suppress(StoreError):
            run = read_run(store, stored)
            if not _decided(run):
                continue
            changed = _changed(stored, header, here, gpus)
            if not changed:
                return Tuned(run)
            stale = stale or Tuned(run, changed)
    return stale


def _is_of(stored: StoredRun, target: Target, header: str) -> bool:
    subject = stored.subject
    if header and subject.header_sha256 == header:
        return True
    path = str(target.path.absolute()) if target.path is not None else ""
    return (path and subject.file == path) or (subject.model, subject.quant) == (target.model, target.quant)


def _decided(run: Run) -> bool:
    """Whether a gain was proven, or the search ended without one."""
    result = run.result
    if not isinstance(result, TuneResult) or result.unsteady:
        return False
    return result.has_gain or run.is_complete


def _changed(stored: StoredRun, header: str, here: ThisMachine, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What is not as it was when the search was made."""
    environment, found = stored.environment, []
    if header and stored.subject.header_sha256 != header:
        found.append("the file")
    if environment is None:
        return (*found, "an unknown llama.cpp")
    if environment.llama_cpp_python != here.llama_cpp_python:
        found.append(f"llama-cpp-python, {environment.llama_cpp_python} then and {here.llama_cpp_python} now")
    if (environment.cpu, environment.n_cores) != (here.cpu, here.n_cores):
        found.append(f"the CPU, {environment.cpu} with {environment.n_cores} cores then")
    if tuple(gpu.name for gpu in environment.gpus) != here.gpus:
        found.append("the GPUs")
    elif _drivers(environment) != tuple(gpu.driver for gpu in gpus):
        found.append(f"the driver, {', '.join(str(each) for each in dict.fromkeys(_drivers(environment)))} then")
    return tuple(found)


def _drivers(environment: Environment) -> tuple[str | None, ...]:
    return tuple(gpu.driver for gpu in environment.gpus)


def tuned_text(tuned: Tuned) -> str:
    """Return `flash_attn off, as run 3 found: 1.47 ±0.03 times the speed of the defaults`."""
    if not tuned.changes:
        return f"run {tuned.run.run_id} found no settings that beat the defaults"
    gain = ratio_text(tuned.result.ratio)
    return f"{changes_text(tuned.changes)}, as run {tuned.run.run_id} found: {gain} times the speed of the defaults"


def require_tuned(target: Target, found: Tuned | None) -> Tuned:
    """Return what was found. Raises UsageError where nothing was, or where it is stale: what changed, what to do."""
    if found is not None and not found.stale:
        return found
    name = plain(f"{target.model} {target.quant}")
    command = EXPERIMENT.command(Job(EXPERIMENT, target, LlamaConfig(), TuneSettings()))
    if found is None:
        raise UsageError(f"no settings were found for {name} on this machine", f"{command} searches for them")
    changed = "; ".join(found.stale)
    raise UsageError(
        f"the settings that run {found.run.run_id} found for {name} are stale: changed since is {changed}",
        f"{command} searches again",
    )
