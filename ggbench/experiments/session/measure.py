"""A session: turns one after the other in one context, whose cache keeps the transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, TakeTurn
from ggbench.engines.endings import Completed, Ending
from ggbench.engines.events import Event, TurnStarted
from ggbench.errors import DoesNotFit, UsageError
from ggbench.experiments.session.record import Cause, SessionResult, SessionSettings, TurnTimed
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.machine_use import summarize_gpus
from ggbench.runs.progress import PointMeasured, Working
from ggbench.runs.recording import GpusInUse, Recording, Series
from ggbench.show.words import say
from ggbench.stats.decode_timing import ServerFound, serving_of

if TYPE_CHECKING:
    from ggbench.gguf_file.model_file import ModelFile
    from ggbench.runs.progress import Measuring
    from ggbench.runs.run import Settings
    from ggbench.runs.session import Session


class SessionExperiment(Experiment):
    """Load, then read what is new in each turn and answer it."""

    kind = "session"
    settings_type = SessionSettings
    result_type = SessionResult
    needs = (TakeTurn,)
    observed = (TurnTimed,)
    timeout_s = 3600.0
    """On a CPU, a long prompt may take minutes without a message."""

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if setup.n_streams > 1:
            what = f"each of {setup.n_streams} slots has a part of the context"
            raise UsageError(what, "add -kvu, with which llama-server shares it by default, or omit -np")

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Take the turns. Raises DoesNotFit if the server has too short a slot."""
        settings, recording = session.settings(SessionSettings), session.recorder.recording
        yield from session.prepare()
        if session.file is not None:
            _check_slot(settings, session.setup.longest_slot(session.file.n_ctx_train))
        ending = yield from session.open()
        _check_slot(settings, session.memory.n_ctx)
        works = _works(settings)
        n_total = sum(work.n_gen for work in works)
        for number, work in enumerate(works, 1):
            if not isinstance(ending, Completed):
                break
            events: list[Event] = []
            running = session.run(work, f"session/t{number}", n_total, events)
            n_new = work.n_prompt - work.n_kept
            text = say(
                "session.reading", number=number, n_turns=len(works), n_prompt=work.n_prompt, n_new=n_new
            )
            ending = yield from _with_text(running, text)
            if isinstance(ending, Completed):
                turn = _timed(recording, number, work, events, session.file)
                session.recorder.observe(turn)
                session.recorder.keep_readings()
                yield PointMeasured(_line(number, turn), turn)
        return ending

    def reduce(self, recording: Recording) -> SessionResult:
        serving = serving_of(recording.last(ServerFound), recording.requests)
        return SessionResult(serving=serving, turns=recording.of(TurnTimed), joules=_joules(recording))


def _works(settings: SessionSettings) -> list[TakeTurn]:
    """Return the workload of each turn."""
    pairs = zip(settings.session.depths, settings.turns, strict=True)
    return [TakeTurn(n_kept + turn.n_new, turn.n_steps, n_kept) for n_kept, turn in pairs]


def _check_slot(settings: SessionSettings, n_ctx: int | None) -> None:
    """Raise DoesNotFit if a slot of this many tokens does not hold the session; None for any number."""
    if n_ctx is None or settings.n_ctx_needed <= n_ctx:
        return
    ends = [work.n_prompt + work.n_gen + 1 for work in _works(settings)]
    n_fit = next(number for number, end in enumerate(ends) if end > n_ctx)
    what = (
        f"the session needs {settings.n_ctx_needed:,} tokens of context, and a slot of the server has {n_ctx:,}"
    )
    hint = f"--turns {n_fit} fits" if n_fit else "the server needs a model trained to more, and -c"
    raise DoesNotFit(what, hint)


def _timed(
    recording: Recording, number: int, work: TakeTurn, events: Sequence[Event], file: ModelFile | None
) -> TurnTimed:
    series = f"session/t{number}"
    started = next(each for each in events if isinstance(each, TurnStarted))
    sampler_ns = sum(recording.series.get(series, Series()).sampler_ns)
    turn = TurnTimed(
        n_prompt=work.n_prompt,
        n_kept=work.n_kept,
        n_gen=work.n_gen + 1,
        n_cached=started.n_cached,
        wait_ns=started.wait_ns,
        answer_ns=recording.token_times([series]).elapsed_ns + sampler_ns,
        slot=started.slot,
    )
    before = recording.last(TurnTimed)
    return turn if before is None else replace(turn, cause=_cause(turn, before, started, file))


def _cause(turn: TurnTimed, before: TurnTimed, started: TurnStarted, file: ModelFile | None) -> Cause:
    """Return why a turn read tokens again; empty if it did not."""
    if not turn.n_reread:
        return ""
    if started.is_cut:
        return "cut"
    if turn.slot != before.slot:
        return "slot"
    if (turn.n_cached or 0) >= before.n_prompt:
        return "text"
    states = () if file is None else file.states
    return "lost" if any(each.window or each.recurrent_elements for each in states) else "unknown"


def _line(number: int, turn: TurnTimed) -> str:
    read = turn.n_prompt if turn.n_read is None else turn.n_read
    return say("session.turn", number=number, n_prompt=turn.n_prompt, n_read=read, wait=turn.wait_ns / 1e9)


def _with_text(running: Measuring[Ending], text: str) -> Measuring[Ending]:
    """Say at first and while a prompt is read what a turn reads."""
    yield Working("prompt", text=text)
    while True:
        try:
            progress = next(running)
        except StopIteration as end:
            ended: Ending = end.value
            return ended
        is_prompt = isinstance(progress, Working) and progress.stage == "prompt"
        yield replace(progress, text=text) if is_prompt else progress


def _joules(recording: Recording) -> float | None:
    """Return the energy of the GPUs in use over all turns; None if no counter tells."""
    in_use, turns = recording.last(GpusInUse), recording.of(TurnTimed)
    if in_use is None:
        return None
    spans = [
        (each.at_ns - each.body.elapsed_ns, each.at_ns)
        for each in recording.observations
        if isinstance(each.body, TurnTimed)
    ]
    n_tokens = sum(turn.n_gen for turn in turns)
    use = summarize_gpus(recording.readings, in_use.indices, spans, n_tokens)
    mj = None if use is None else use.energy_per_token_mj
    return None if mj is None else mj * n_tokens / 1e3


EXPERIMENT = SessionExperiment()
