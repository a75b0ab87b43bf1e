"""Settings that an earlier search found for this machine, this file and this build of llama.cpp."""

from __future__ import annotations

import contextlib

from ggbench.decisions.known_speeds import ThisMachine
from ggbench.errors import GgbenchError, StoreError
from ggbench.experiments.tune.record import TuneResult, changes_text, ratio_text
from ggbench.machine.gpus import list_gpus
from ggbench.machine.records import Environment, Gpu
from ggbench.models.targets import Target
from ggbench.runs.experiment import FoundSetup
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, StoredRun
from ggbench.runs.stored import read_run


def find_tuned(store: Store, target: Target) -> FoundSetup | None:
    """Return the newest search for this file that decided something, one that still holds before a stale one.

    A search counts where the file's header, or the name that it was asked for by, is the same. None where there is
    none. Raises StoreError where results cannot be read.
    """
    header = ""
    with contextlib.suppress(GgbenchError):
        header = target.header().header_sha256
    here, gpus = ThisMachine.describe(), list_gpus()
    stale: FoundSetup | None = None
    for stored in store.list_runs(kind="tune"):
        if stored.state == RUNNING or stored.is_imported or not _is_of(stored, target, header):
            continue
        with contextlib.suppress(StoreError):
            run = read_run(store, stored)
            if not _decided(run):
                continue
            changed = _changed(stored, header, here, gpus)
            if not changed:
                return _found(run)
            stale = stale or _found(run, changed)
    return stale


def _found(run: Run, stale: tuple[str, ...] = ()) -> FoundSetup:
    """As `flash_attn off, as run 3 found: 1.47 ±0.03 times the speed of the defaults`."""
    result = run.result
    assert isinstance(result, TuneResult)
    if result.best is None:
        return FoundSetup(run.run_id, {}, f"run {run.run_id} found no settings that beat the defaults", stale)
    changed, gain = result.changes(result.best), ratio_text(result.ratio)
    text = f"{changes_text(changed)}, as run {run.run_id} found: {gain} times the speed of the defaults"
    return FoundSetup(run.run_id, changed, text, stale)


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
