"""The measurement of `ggbench.experiments.speculate.measure`: both models in one worker, timed in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import DraftText, Engine, Source, Speculate
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Speculated, TextDrafted
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported, UsageError
from ggbench.experiments.speculate.pair_memory import pair_memory, require_fit
from ggbench.experiments.speculate.record import (
    FEWEST_ROUNDS,
    DraftedPair,
    PairCost,
    SpeculateSettings,
    SpeculationRound,
    TextRound,
)
from ggbench.experiments.speculate.steps import measured_steps
from ggbench.experiments.speculate.texts import TEXTS, is_trained
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import remove_left_twins, twin_folder, twin_of
from ggbench.gguf_file.twin_writer import TwinGroup, group_twins, require_room
from ggbench.machine.gpus import list_gpus
from ggbench.machine.host import describe_cpu
from ggbench.models.targets import Target
from ggbench.paths import forecasts_dir
from ggbench.runs.experiment import Conclusion
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.runs.session import Session, made_file, subject_of
from ggbench.sizing.drafts import check_pair, check_rolls_back, check_stands_alone
from ggbench.sizing.layer_sample import WHOLE_BYTES, StepCost, layer_placements, step_cost, twin_layers
from ggbench.stats.speculation import TYPICAL_ACCEPTANCE, StepTimes, best_step
from ggbench.text import sanitize
from ggbench.units import counted, format_bytes, format_count, format_rough_seconds

_N_SINGLE = 2
_REQUEST_S, _MOST_PASSES = 1.0, 8
"""Passes of a request: as many as take about this long."""
_TEXTS_SHARE = 0.5
"""Time for texts, as a share of that for steps."""
_FEWEST_GEN, _MOST_GEN = 16, 192
"""Tokens of a text; a model too slow for the fewest generates none."""
_UNKNOWN_BYTES_PER_S = 20e9
_WEIGHTS_SHARE = 0.5
"""Share of the memory bandwidth reached by reading weights."""
_MADE_BYTES_PER_S = 0.3e9
"""Rate in bytes/s at which a twin is written, loaded, repacked for the CPU's kernels, and removed."""
_STARTED_S = 2.0
"""Startup time of each worker."""
_BATCH_TOKENS_PER_STEP = 8
"""Tokens of a batch that take as long as a step."""
_FILL_STEPS = 5
"""Steps that take as long as filling the cache before each request, mostly with copies."""


def time_pair(session: Session) -> Generator[Progress, None, Conclusion]:
    """Check the pair by its headers, write missing twins, then time the steps. Raises like `measure`."""
    assert session.draft is not None
    settings, setup = session.settings(SpeculateSettings), LlamaConfig.of(session.setup)
    target, draft = session.target.header(), session.draft.header()
    depths = _checked_depths(target, draft, settings)
    session.use_file(target)
    twins = _twins(session, target, setup)
    subject = subject_of(session.draft, draft, setup.for_draft())
    session.recorder.observe(
        DraftedPair(subject, tuple(each.cost for each in twins), _has_random_router(session.target, target))
    )
    needed = replace(settings, depths=depths).n_ctx_needed
    setup = LlamaConfig.of(setup.holding(needed))
    memory = pair_memory(session, target, draft, setup)
    if memory is not None:
        session.recorder.observe(memory)
        if not twins:
            require_fit(target, memory)
    group = group_twins([each.file for each in twins[:-1]]) if twins else None
    has_texts = is_trained(session.target) and is_trained(session.draft)
    cost = _cost(session, target, draft, group, twins, settings, depths, has_texts=has_texts)
    yield _announced(cost)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        draft_path = (yield from made_file(session.draft, session.cancel)).paths[0]
        if group is None:
            paths = [(yield from session.prepare_file()).paths[0]]
        else:
            folder = stack.enter_context(twin_folder(forecasts_dir()))
            paths = []
            for number, own in enumerate(group.own):
                yield Working("write", 0, own.file_bytes, counted(twins[number].cost.n_layer, "layer"))
                paths.append(group.write(number, folder))
        pair = _Pair(session, draft_path, paths, repeats_token=_has_random_router(session.target, target))
        stack.callback(pair.close)
        ending = yield from pair.open(replace(setup, n_outputs_max=max(settings.n_drafted) + 1))
        if isinstance(ending, Completed):
            ending = yield from pair.rounds(depths, started)
        if isinstance(ending, Completed) and has_texts:
            ending = yield from pair.texts()
        return ending


def _checked_depths(target: ModelFile, draft: ModelFile, settings: SpeculateSettings) -> tuple[int, ...]:
    """Return the depths within both training contexts. Raises UsageError for an unsuitable pair, or without any."""
    check_stands_alone(draft)
    check_pair(target, draft)
    for file in (target, draft):
        check_rolls_back(file)
    trained = min(file.n_ctx_train or max(settings.depths) + settings.n_ctx_needed for file in (target, draft))
    depths = tuple(n for n in sorted(settings.depths) if n + max(settings.n_drafted) < trained)
    if not depths:
        raise UsageError(
            f"no depth is within the training context of {format_count(trained)} tokens", "use a smaller --n-depth"
        )
    return depths


class _Twin(msgspec.Struct, frozen=True):
    cost: StepCost
    file: ModelFile


def _twins(session: Session, model: ModelFile, setup: LlamaConfig) -> tuple[_Twin, ...]:
    """Return twins of some layers, fewest first, and the model itself; nothing for a model that is measured whole.

    A file that is here is measured itself, and so is a twin of up to 1 GB.
    """
    if session.target.path is not None or is_trained(session.target) or (model.weight_bytes or 0) <= WHOLE_BYTES:
        return ()
    if len(layer_placements(model, setup)) > 1 and list_gpus():
        raise Unsupported(
            f"{sanitize(model.name)} is split between GPU and main memory, and is not on this disk",
            "omit -ngl and the tensor overrides, or give the file",
        )
    picks = twin_layers(model, describe_cpu().last_level_cache_bytes)
    if len(picks) == 1:
        return ()
    types = setup.type_k, setup.type_v
    twins = [_Twin(step_cost(model, layers, *types), twin_of(model, model.name, layers)) for layers in picks]
    forecasts_dir().mkdir(parents=True, exist_ok=True)
    remove_left_twins(forecasts_dir())
    return (*twins, _Twin(step_cost(model, range(model.n_layer - model.n_layer_nextn), *types), model))


def _has_random_router(target: Target, model: ModelFile) -> bool:
    """Return whether a twin's router, which is random, chooses experts."""
    return bool(model.n_expert) and not is_trained(target)


class _Pair:
    """The target, or its largest twin, with the draft in one worker; the smaller twin in another."""

    def __init__(self, session: Session, draft: Path, paths: Sequence[Path], *, repeats_token: bool) -> None:
        self._session, self._draft, self._paths, self._repeats_token = session, draft, paths, repeats_token
        self._smaller: Engine | None = None
        if len(paths) > 1:
            self._smaller = session.context.launch(session.setup, session.cancel)
        self._n_passes = 1

    def open(self, setup: LlamaConfig) -> Generator[Progress, None, Ending]:
        ending = yield from self._session.open(setup, self._paths[-1], self._draft)
        if self._smaller is not None and isinstance(ending, Completed):
            *_, found = self._smaller.open(Source(self._paths[0]), setup)
            assert isinstance(found, Ending)
            return found
        return ending

    def rounds(self, depths: Sequence[int], started: float) -> Generator[Progress, None, Ending]:
        """Time every depth in every round, after an untimed one, as long as the time since `started` allows."""
        session, settings = self._session, self._session.settings(SpeculateSettings)
        round_began = started
        ending: Ending = Completed()
        for number in range(-1, settings.rounds):
            now = time.monotonic()
            if number >= FEWEST_ROUNDS and 2 * now - round_began - started > settings.within_s:
                break
            round_began = now
            for n_depth in depths if number >= 0 else depths[:1]:
                text = f"round {number + 1} of {settings.rounds}" if number >= 0 else "warm-up"
                yield Working("probe", max(0, number), settings.rounds, text)
                for twin in range(len(self._paths)):
                    began = time.monotonic()
                    passes, ending = yield from self._run(twin, n_depth)
                    if not isinstance(ending, Completed):
                        return ending
                    if number < 0:
                        session.recorder.skip_readings()  # loading reads files that were just written
                        if twin == len(self._paths) - 1:
                            self._n_passes = _n_passes(time.monotonic() - began)
                        continue
                    found = SpeculationRound(number, n_depth, _medians(passes), twin)
                    session.recorder.observe(found)
                    session.recorder.keep_readings()
                    yield PointMeasured("", found)
        return ending

    def texts(self) -> Generator[Progress, None, Ending]:
        """Generate each text with the k that is fastest at a typical acceptance, alternating with none."""
        session, settings = self._session, self._session.settings(SpeculateSettings)
        timed = session.recorder.recording.of(SpeculationRound)
        n_depth = min(each.n_depth for each in timed)
        steps = [step for depth, step in measured_steps(timed, ()) if depth == n_depth]
        best = best_step(steps, TYPICAL_ACCEPTANCE).times
        ending: Ending = Completed()
        n_gen = _n_gen(best.t1_ms / 1e3, settings.within_s)
        if not n_gen:
            yield PointMeasured("no text is generated, as that would take longer than --within", best)
            return ending
        for number in range(FEWEST_ROUNDS):
            for name, text in TEXTS.items():
                yield Working("decode", number, FEWEST_ROUNDS, f"{name}, round {number + 1} of {FEWEST_ROUNDS}")
                events, ending = yield from session.ask(DraftText(text, n_gen, best.k, drafts_first=number % 2 == 1))
                if not isinstance(ending, Completed):
                    return ending
                for event in events:
                    if isinstance(event, TextDrafted):
                        found = TextRound(name, number, best.k, event)
                        session.recorder.observe(found)
                        yield PointMeasured("", found)
        return ending

    def _run(self, twin: int, n_depth: int) -> Generator[Progress, None, tuple[list[Speculated], Ending]]:
        settings = self._session.settings(SpeculateSettings)
        is_largest = twin == len(self._paths) - 1
        workload = Speculate(n_depth, settings.n_drafted, _N_SINGLE, self._n_passes, self._repeats_token)
        events: Sequence[object]
        if is_largest:
            events, ending = yield from self._session.ask(workload)
        else:
            assert self._smaller is not None
            *events, last = self._smaller.run(workload)
            assert isinstance(last, Ending)
            ending = last
        return [each for each in events if isinstance(each, Speculated)], ending

    def close(self) -> None:
        if self._smaller is not None:
            self._smaller.close()


def _n_gen(token_s: float, within_s: float) -> int:
    """Return the tokens of each text, given the time of one; 0 if there is no time for any."""
    n_gen = int(_TEXTS_SHARE * within_s / (2 * token_s * FEWEST_ROUNDS * len(TEXTS)))
    return min(n_gen, _MOST_GEN) if n_gen >= _FEWEST_GEN else 0


def _n_passes(request_s: float) -> int:
    """Return the passes of a request, given the time of one with a single pass."""
    return min(_MOST_PASSES, max(1, round(_REQUEST_S / request_s)))


def _medians(passes: Sequence[Speculated]) -> tuple[StepTimes, ...]:
    """Return the median of each part over the passes, for each k."""
    t1_ms = statistics.median(ns for each in passes for ns in each.single_ns) / 1e6
    sampler_ms = statistics.median(each.sampler_ns for each in passes) / 1e6
    found = []
    for steps in zip(*(each.steps for each in passes), strict=True):
        draft, verify, reread, whole = (
            statistics.median(getattr(step, name) for step in steps) / 1e6
            for name in ("draft_ns", "verify_ns", "reread_ns", "step_ns")
        )
        k = steps[0].n_drafted
        host_ms = max(0.0, whole - draft - verify - reread)
        repeated = [step.repeated_ns / 1e6 for step in steps if step.repeated_ns is not None]
        repeated_ms = statistics.median(repeated) if repeated else None
        found.append(StepTimes(k, t1_ms, verify, draft / k, reread, host_ms, sampler_ms, repeated_ms))
    return tuple(found)


def _cost(
    session: Session,
    target: ModelFile,
    draft: ModelFile,
    group: TwinGroup | None,
    twins: Sequence[_Twin],
    settings: SpeculateSettings,
    depths: Sequence[int],
    *,
    has_texts: bool,
) -> PairCost:
    context = session.context
    bandwidth = context.given_bandwidth or context.cpu_bandwidth
    rate = _WEIGHTS_SHARE * (bandwidth.bytes_per_s if bandwidth is not None else _UNKNOWN_BYTES_PER_S)
    whole_bytes = target.active_weight_bytes or 0
    outside_bytes = whole_bytes - (twins[-1].cost.layer_bytes if twins else 0)
    token_s = [(outside_bytes + each.cost.layer_bytes) / rate for each in twins[:-1]] or [whole_bytes / rate]
    draft_s = (draft.active_weight_bytes or 0) / rate
    verify = [1 + (k + 1) / _BATCH_TOKENS_PER_STEP for k in settings.n_drafted]
    pass_s = sum(token_s) * (1 + _N_SINGLE + sum(verify)) + draft_s * (sum(settings.n_drafted) + sum(verify))
    untimed_s = sum(token_s) * (max(verify) + _FILL_STEPS) + draft_s * (max(settings.n_drafted) + max(verify))
    each_s = untimed_s + max(pass_s, min(_REQUEST_S, _MOST_PASSES * pass_s))
    rounds_s = [n * len(depths) * each_s for n in (FEWEST_ROUNDS, settings.rounds)]
    disk_bytes = group.file_bytes if group else target.file_bytes if session.target.path is None else 0
    disk_bytes += 0 if session.draft is None or session.draft.path else draft.file_bytes
    made_s = (len(token_s) * _STARTED_S) + (disk_bytes or 0) / _MADE_BYTES_PER_S
    measured_s = max(rounds_s[0], min(rounds_s[1], settings.within_s))
    text_s = 0.0
    if has_texts:
        text_s = FEWEST_ROUNDS * len(TEXTS) * 2 * token_s[0] * _n_gen(token_s[0], settings.within_s)
    return PairCost(made_s + untimed_s + pass_s + measured_s + text_s, disk_bytes)


def _announced(cost: PairCost) -> PointMeasured:
    """Return the cost, shown before anything is written. Raises DoesNotFit if the disk lacks room."""
    text = f"takes about {format_rough_seconds(cost.seconds)}"
    if cost.disk_bytes:
        folder = forecasts_dir()
        hint = "free some space, set XDG_CACHE_HOME to a folder with room"
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder, cost.disk_bytes, "the twins need", hint)
        text += f" and {format_bytes(cost.disk_bytes)} of disk"
    return PointMeasured(text, cost)
