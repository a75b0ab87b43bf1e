"""The largest n_ctx that really works: foreseen in milliseconds, closed in on with real contexts, proven by a decode.

Whatever becomes of a worker is an answer about the n_ctx it was asked for. Only a model that does not load, or of
which not even the smallest context works, is an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggbench.catalog.selector import Target
from ggbench.engine.endings import Cancelled, OutOfMemory
from ggbench.engine.logs import Allocations
from ggbench.errors import DoesNotFit, EngineFailed, GgbenchError
from ggbench.experiments.bracket import Bracket
from ggbench.experiments.budget import BESIDE_BUFFERS_BYTES
from ggbench.experiments.command import reproduce
from ggbench.experiments.forecast import Forecast, SearchCancelled, forecast
from ggbench.experiments.prober import LoadEnded, Prober
from ggbench.experiments.progress import TrialStarted
from ggbench.experiments.rig import Rig
from ggbench.experiments.row import kv_bytes_per_token, make_run_start
from ggbench.experiments.search_budget import SearchBudget, taken_bytes
from ggbench.experiments.search_log import SearchLog
from ggbench.experiments.search_progress import ProbeFinished, ProbeStarted, SearchFinished, SearchProgress
from ggbench.experiments.smaller_quant import smaller_quant_advice
from ggbench.experiments.trial import prepare
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.sparse import write_sparse
from ggbench.machine.gpus import list_gpus
from ggbench.machine.readings import list_gpu_processes, name_processes
from ggbench.machine_records import GpuProcess
from ggbench.records import KV_CELLS, Certificate, LoadConfig, Outcome, Probe
from ggbench.units import exact_size, format_bytes, format_count

SEARCH_TIMEOUT_S = 3600.0
"""Longest silence of a worker that decodes at the far end of a context, which is slow on a CPU."""

_UNSEEN_BYTES = BESIDE_BUFFERS_BYTES
"""Kept free at the first guess: a context that passes tells how much is left, one that fails does not."""

_OF_A_CELL_BYTES = 100
"""What llama.cpp keeps of a cell once it is in use, beside K and V: measured 90 with its 0.5.0, on a 64-bit machine."""


@dataclass(frozen=True, slots=True)
class MaxctxSettings:
    """How to search."""

    config: LoadConfig = field(default_factory=LoadConfig)
    """`n_ctx` is a ceiling."""
    reserve_bytes: int | None = None
    """Memory kept out of the budget; None takes 1 GiB of main memory that has no limit."""
    prove: bool = True
    """Decode at the far end of the winner."""
    cap_train: bool = False
    """Search no further than the training context."""

    def command_for(self, target: Target) -> str:
        """The line that searches again."""
        reserve = {} if self.reserve_bytes is None else {"reserve": exact_size(self.reserve_bytes)}
        flags = [*(["--cap-train"] if self.cap_train else []), *([] if self.prove else ["--no-prove"])]
        return " ".join([reproduce("maxctx", target.named, self.config, reserve), *flags])


def run_maxctx(rig: Rig, targets: tuple[Target, ...], settings: MaxctxSettings) -> Generator[SearchProgress]:
    """Search for one target after another; one that has no largest context is a certificate with its reason.

    Once `rig.cancel` is set the running search ends with what it has, and no other starts.
    """
    for index, target in enumerate(targets):
        if rig.cancel.is_set():
            return
        yield TrialStarted(target.model, target.quant, index, len(targets))
        search = _Search(rig, target, settings)
        error: GgbenchError | None = None
        try:
            yield from search.run()
        except (CancelledError, SearchCancelled):
            search.outcome, search.reason = Outcome.CANCELLED, "stopped before its end"
        except GgbenchError as caught:
            error = caught
            search.outcome, search.reason = _outcome_of(caught), caught.message
        finally:
            search.close()
        certificate = search.log.finish(search.certificate())
        yield SearchFinished(certificate, error, search.log.error)


class _Search:
    """The search for one target, and what it has found so far."""

    def __init__(self, rig: Rig, target: Target, settings: MaxctxSettings) -> None:
        self._rig, self._target, self._settings = rig, target, settings
        self._config = replace(settings.config, threads=settings.config.threads or rig.threads)
        self._file: ModelFile | None = None
        self._forecast: Forecast | None = None
        self._prober: Prober | None = None
        self._probes: list[Probe] = []
        self._bracket = Bracket(0)
        self._allocations: dict[int, Allocations] = {}
        self._batch_sizes: dict[int, tuple[int, int] | None] = {}
        self._verified = False
        self._peak_bytes: int | None = None
        self._gpu_processes: tuple[GpuProcess, ...] = ()
        self.log = SearchLog(rig.store)
        self.outcome = Outcome.FAILED
        self.reason = ""

    def run(self) -> Generator[SearchProgress]:
        """All of it. Raises DoesNotFit, EngineFailed and what `materialize` does."""
        seen = self._forecast = yield from self._look_ahead()
        if seen.budget.on_gpu:
            self._gpu_processes = list_gpu_processes([gpu.index for gpu in seen.budget.gpus])
        for probe in seen.probes:
            self._probes.append(probe)
            yield ProbeFinished(probe, self._bracket.passed, self._bracket.failed)
        if seen.weight_bytes is not None and seen.weight_bytes > seen.budget.budget_bytes:
            if self._file is not None:
                self._begin_run(self._file, seen)
            raise self._does_not_fit(seen.weight_bytes, seen.budget)
        file = self._file = yield from prepare(self._target, self._rig.cancel)
        self._begin_run(file, seen)
        prober = self._prober = Prober(
            self._rig,
            file,
            self._config,
            limit_bytes=seen.budget.worker_limit_bytes,
            reserve_bytes=seen.budget.worker_reserve_bytes,
        )
        self._bracket = Bracket(seen.ceiling_n_ctx)
        try:
            yield from self._allocate(prober, seen)
            if self._settings.prove and self._bracket.passed is not None and self.outcome is Outcome.COMPLETED:
                yield from self._prove(prober, seen)
        except LoadEnded as ended:
            self._explain_load(ended)
        if self._bracket.passed is None and self.outcome is Outcome.COMPLETED:
            failed = next(probe for probe in reversed(self._probes) if not probe.passed)
            if failed.outcome is Outcome.OUT_OF_MEMORY:
                raise self._does_not_fit(seen.weight_bytes or file.file_bytes, seen.budget, failed.reason)
            raise EngineFailed(
                f"{self._name}: not even {KV_CELLS} tokens of context work: {failed.reason}",
                "another quant or --flash-attn setting may work",
            )

    def _begin_run(self, file: ModelFile, seen: Forecast) -> None:
        """From here on the store has it: a Ctrl-C before, while the file is downloaded, leaves no run."""
        command = self._settings.command_for(self._target)
        self.log.begin(make_run_start("maxctx", self._target, file, self._config, seen.environment, command))
        for probe in seen.probes:
            self.log.keep(probe)

    def close(self) -> None:
        """End the worker."""
        if self._prober is not None:
            self._prober.close()

    def certificate(self) -> Certificate:
        """What is known by now."""
        file, seen, max_n_ctx = self._file, self._forecast, self._bracket.passed
        target, told = self._target, self._allocations.get(max_n_ctx or 0)
        n_batch, n_ubatch = self._batch_sizes.get(max_n_ctx or 0) or (None, None)
        found = Certificate(
            model=target.model,
            quant=target.quant,
            file=str(file.paths[0] if file and file.paths else target.path or ""),
            provenance=target.provenance,
            outcome=self.outcome,
            reason=self.reason,
            max_n_ctx=max_n_ctx,
            first_fail_n_ctx=self._bracket.failed,
            verified_by_decode=self._verified,
            probes=tuple(self._probes),
            peak_bytes=self._peak_bytes,
            gpu_processes=self._gpu_processes,
            warnings=self._warnings(),
            config=self._config,
            environment=self._prober.environment if self._prober else None,
            command=self._settings.command_for(target),
        )
        if file is not None:
            found = replace(
                found,
                file_bytes=file.file_bytes,
                n_params=file.n_params,
                bpw=file.bpw,
                weight_bytes=file.weight_bytes,
                kv_bytes_per_token=kv_bytes_per_token(file, self._config),
                n_ctx_train=file.n_ctx_train,
            )
        if seen is not None:
            found = replace(
                found,
                planned_n_ctx=seen.planned_n_ctx,
                theory_n_ctx=seen.theory_n_ctx,
                ceiling_n_ctx=seen.ceiling_n_ctx,
                budget_bytes=seen.budget.budget_bytes,
                reserve_bytes=seen.budget.reserve_bytes,
                free_bytes=seen.budget.free_bytes,
            )
        if told is not None and seen is not None:
            found = replace(
                found,
                buffers=told.buffers,
                kv_bytes=told.total("kv_bytes"),
                compute_bytes=told.total("compute_bytes"),
                other_bytes=_other_bytes(self._peak_bytes, told, on_gpu=seen.budget.on_gpu),
                n_batch=n_batch,
                n_ubatch=n_ubatch,
                flash_attn=told.flash_attn,
            )
        return found

    def _look_ahead(self) -> Generator[SearchProgress, None, Forecast]:
        """The forecast, for which a file need not be made or downloaded yet: its header and a hole are enough."""
        with tempfile.TemporaryDirectory(prefix="ggbench-") as folder:
            if self._target.source is not None:
                file = self._target.source.header()
                path = write_sparse(file, Path(folder))
            else:
                file = yield from prepare(self._target, self._rig.cancel)
                path = file.paths[0]
            self._file = file
            settings = self._settings
            return forecast(self._rig, file, path, self._config, settings.reserve_bytes, cap_train=settings.cap_train)

    def _allocate(self, prober: Prober, seen: Forecast) -> Generator[SearchProgress]:
        """Make contexts until the last that passes and the first that fails are neighbours."""
        yield from prober.load()
        expected = seen.planned_n_ctx
        if prober.left_bytes is not None:
            expected = seen.n_ctx_within(prober.left_bytes - _UNSEEN_BYTES)
        if expected is None:
            expected = seen.planned_n_ctx or (self._file and self._file.n_ctx_train) or KV_CELLS
        self.outcome = Outcome.COMPLETED
        while not self._bracket.is_closed:
            n_ctx = self._bracket.next(expected)
            yield ProbeStarted(n_ctx, "alloc", self._bracket.passed, self._bracket.failed, seen.budget.budget_bytes)
            probe = self._unless_cancelled((yield from prober.allocate(n_ctx)))
            if self._stopped(probe):
                yield self._answered(probe)
                return
            self._bracket.note(n_ctx, passed=probe.passed)
            yield self._answered(probe)
            if probe.passed:
                self._note_context(prober, n_ctx)
                if prober.left_bytes is not None and seen.bytes_per_token:
                    expected = n_ctx + int(prober.left_bytes / seen.bytes_per_token)

    def _prove(self, prober: Prober, seen: Forecast) -> Generator[SearchProgress]:
        """Decode at the far end of the winner; where that fails, of contexts below it until the edge is found again."""
        winner = self._bracket.passed
        assert winner is not None
        below: Bracket | None = None
        n_ctx = expected = winner
        while True:
            known = below or self._bracket
            yield ProbeStarted(n_ctx, "decode", known.passed, known.failed, seen.budget.budget_bytes)
            probe = self._unless_cancelled((yield from prober.prove(n_ctx)))
            if self._stopped(probe):
                yield self._answered(probe)
                return
            if probe.passed and not prober.was_full:
                self.reason = "llama.cpp had cells left after a decode at the far end, so it proves nothing"
                yield self._answered(probe)
                return
            if probe.passed:
                self._verified = True
                self._note_context(prober, n_ctx)
                self._note_peak(prober)
            if below is None:
                if probe.passed:
                    yield self._answered(probe)
                    return
                below = self._bracket = Bracket(n_ctx - KV_CELLS, failed=n_ctx)
                expected = n_ctx - int(_OF_A_CELL_BYTES * n_ctx / (seen.bytes_per_token or _OF_A_CELL_BYTES * n_ctx))
            else:
                below.note(n_ctx, passed=probe.passed)
            yield self._answered(probe)
            if below.is_closed:
                return
            if probe.passed and prober.left_bytes is not None and seen.bytes_per_token:
                expected = n_ctx + int(prober.left_bytes / seen.bytes_per_token)
            n_ctx = below.next(expected)

    def _unless_cancelled(self, probe: Probe) -> Probe:
        """A worker that fails while it is being ended tells nothing about memory."""
        if probe.passed or not self._rig.cancel.is_set():
            return probe
        return replace(probe, outcome=Outcome.CANCELLED)

    def _answered(self, probe: Probe) -> ProbeFinished:
        self._probes.append(probe)
        self.log.keep(probe)
        return ProbeFinished(probe, self._bracket.passed, self._bracket.failed)

    def _stopped(self, probe: Probe) -> bool:
        """Whether the answer says nothing about memory: the person left, or the worker was too slow to tell."""
        if probe.outcome is Outcome.CANCELLED:
            self.outcome, self.reason = Outcome.CANCELLED, probe.reason
        elif probe.outcome is Outcome.TIMED_OUT:
            self.reason = f"{probe.kind} at {format_count(probe.n_ctx)}: {probe.reason}; --timeout gives it longer"
            if probe.kind == "alloc":
                self.outcome = Outcome.TIMED_OUT
        else:
            return False
        return True

    def _note_context(self, prober: Prober, n_ctx: int) -> None:
        self._allocations[n_ctx], self._batch_sizes[n_ctx] = prober.allocations, prober.batch_sizes

    def _note_peak(self, prober: Prober) -> None:
        assert self._forecast is not None
        budget = self._forecast.budget
        if budget.on_gpu:
            self._peak_bytes = taken_bytes(budget, list_gpus())
        else:
            self._peak_bytes = prober.peak_bytes

    def _warnings(self) -> tuple[str, ...]:
        warnings = self._forecast.warnings if self._forecast else ()
        n_train = self._file and self._file.n_ctx_train
        if n_train and (self._bracket.passed or 0) > n_train:
            warnings += (
                f"beyond the {format_count(n_train)} tokens that the model was trained on; --cap-train stops there",
            )
        return warnings

    def _explain_load(self, ended: LoadEnded) -> None:
        """A model that did not load, as what it means for the search."""
        assert self._file is not None
        assert self._forecast is not None
        if isinstance(ended.ending, Cancelled) or self._rig.cancel.is_set():
            self.outcome, self.reason = Outcome.CANCELLED, ended.ending.reason
            return
        if isinstance(ended.ending, OutOfMemory):
            needed = self._forecast.weight_bytes or self._file.file_bytes
            raise self._does_not_fit(needed, self._forecast.budget, ended.ending.reason) from ended
        raise EngineFailed(
            f"{self._name} does not load: {ended.ending.reason}", "llama.cpp may be too old for it, or the file broken"
        ) from ended

    def _does_not_fit(self, weight_bytes: int, budget: SearchBudget, reason: str = "") -> DoesNotFit:
        """How much is missing, and which quant would fit."""
        least_bytes = (self._forecast.least_bytes if self._forecast else None) or 0
        missing = weight_bytes + least_bytes - budget.budget_bytes
        parts = f"weights of {format_bytes(weight_bytes)}"
        if least_bytes:
            parts += f" and {format_bytes(least_bytes)} for {KV_CELLS} tokens"
        room = f"{format_bytes(budget.budget_bytes)} of {budget.place}"
        if budget.reserve_bytes:
            room += f", {format_bytes(budget.reserve_bytes)} being kept in reserve"
        what = f"{self._name} does not fit into {room}: {parts}"
        if missing > 0:
            what += f", {format_bytes(missing)} are missing"
        elif reason:
            what += f", and llama.cpp needs more beside them ({reason})"
        if self._gpu_processes:
            what += f"; GPU memory is held by {name_processes(self._gpu_processes)}"
        room_bytes = budget.budget_bytes - least_bytes - (_UNSEEN_BYTES if missing <= 0 else 0)
        in_budget = weight_bytes / (self._file.weight_bytes or weight_bytes) if self._file else 1.0
        advice = [smaller_quant_advice(self._target, room_bytes, in_budget)]
        if budget.on_gpu:
            advice.append("-ngl puts fewer layers on the GPU")
        if self._settings.reserve_bytes:
            advice.append("a smaller --reserve leaves more")
        return DoesNotFit(what, "; ".join(advice))

    @property
    def _name(self) -> str:
        return f"{self._target.model} {self._target.quant}"


def _other_bytes(peak_bytes: int | None, told: Allocations, *, on_gpu: bool) -> int | None:
    if peak_bytes is None:
        return None
    counted = sum(
        each.weight_bytes + each.kv_bytes + each.compute_bytes + each.output_bytes
        for each in told.buffers
        if not (on_gpu and each.is_host)
    )
    return peak_bytes - counted if peak_bytes >= counted else None


def _outcome_of(error: GgbenchError) -> Outcome:
    return Outcome.OUT_OF_MEMORY if isinstance(error, DoesNotFit) else Outcome.FAILED
