"""A decode: every token of a long generation timed, and latency(n) = (n - 1) / W + B fitted."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.engines.contract import (
    BatchedDecode,
    Decode,
    DecodeAtDepth,
    EngineConfig,
    Prefill,
    Workload,
    check_users,
)
from ggbench.engines.endings import Cancelled, Completed
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.progress import Measuring, PointMeasured, Working
from ggbench.runs.recording import Recording, Series
from ggbench.runs.store.runs import WARMUP
from ggbench.show.words import say
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, DepthSpeed, ServerFound, TokenTimes
from ggbench.stats.turns import ordered

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.session import Session
    from ggbench.stats.speed_curve import SpeedCurve


_PREFILL_REPEAT = 3


class DecodeExperiment(Experiment):
    """Load, read the prompt a few times, warm up, then decode as often as requested, for several users, or at each
    depth.
    """

    kind = "decode"
    settings_type = DecodeSettings
    result_type = DecodeResult
    keeps_n_ctx = True

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        if isinstance(settings, DecodeSettings) and settings.depths:
            setup.require(DecodeAtDepth)
        super().check(setup, settings)
        check_users(setup, settings.n_seqs if isinstance(settings, DecodeSettings) else 1)

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Run the repetitions one after the other, each from an empty cache."""
        settings = session.settings(DecodeSettings)
        yield from session.prepare()
        ending = yield from session.open(_with_slots(session.setup, settings))
        if not isinstance(ending, Completed):
            return ending
        n_seqs = settings.n_seqs
        if n_seqs > 1 and (limit := session.limit(n_seqs)) is not None:
            session.recorder.observe(limit)
        again = _again(session, settings)
        n_timed = settings.n_gen * settings.repeat * (len(settings.depths) or 1)
        n_total = n_timed + sum(n_gen for _, n_gen in again)
        for workload, series in _steps(settings):
            ending = yield from session.run(workload, series, n_total=n_total)
            if not isinstance(ending, Completed):
                return ending
        return (yield from _time_again(session, again, n_total))

    def reduce(self, recording: Recording) -> DecodeResult:
        settings = recording.settings(DecodeSettings)
        if settings.depths:
            return _at_depths(recording, settings)
        if settings.n_seqs > 1:
            return _of_users(recording, settings)
        times = recording.token_times(recording.timed_series)
        return _result(recording, times, recording.prompt_ns.get(settings.n_prompt, []))

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        from ggbench.stats.speed_curve import measured_curve

        found, settings = run.result, run.head.settings
        if (
            not isinstance(found, DecodeResult)
            or not isinstance(settings, DecodeSettings)
            or found.n_seqs != n_seqs
        ):
            return None
        windows, first = found.depths, None
        if not settings.depths and found.latency is not None:
            n_gen, latency, first = min(settings.n_gen, found.n_gen), found.latency, 1
            windows = (DepthSpeed(found.n_prompt, n_gen, latency.tok_s, settings.repeat, latency.tok_s_ci95),)
        return measured_curve(
            run.run_id, windows, found.fit, found.limit, first=first, is_steady=not run.unsteady
        )


def _steps(settings: DecodeSettings) -> list[tuple[Workload, str]]:
    """Return the workloads in order, each with its series."""
    if settings.depths:
        # one token is decoded there before the timed ones, so the cache is never empty
        windows = [
            (DecodeAtDepth(max(0, depth - 1), settings.n_gen), f"decode/d{depth}/b1/r{turn}")
            for turn in range(settings.repeat)
            for depth in ordered(settings.depths, turn)  # so that drift of the machine affects all depths alike
        ]
        return [(DecodeAtDepth(0, settings.n_warmup), "warmup/d0/b1/r0"), *windows]
    n_prompt, n_seqs, name = settings.n_prompt, settings.n_seqs, f"p{settings.n_prompt}/b{settings.n_seqs}"

    def decode(n_gen: int) -> Workload:
        return Decode(n_prompt, n_gen) if n_seqs == 1 else BatchedDecode(n_prompt, n_gen, n_seqs)

    prompts: list[tuple[Workload, str]] = (
        [(Prefill(n_prompt, _PREFILL_REPEAT, warmup=1), "")] if n_seqs == 1 else []
    )
    timed = [(decode(settings.n_gen), f"decode/{name}/r{index}") for index in range(settings.repeat)]
    return [*prompts, (decode(settings.n_warmup), f"warmup/{name}/r0"), *timed]


_AGAIN = f"{WARMUP}again/d"
"""Beginning of the series of windows timed after a run; their steps are not among the run's own."""


def _again(session: Session, settings: DecodeSettings) -> list[tuple[int, int]]:
    """Return depth and tokens of each window to time again; none if the engine cannot fill the cache by itself."""
    from ggbench.stats.linefit import again_windows

    if settings.n_seqs > 1 or settings.depths or session.setup.unsupported(DecodeAtDepth):
        return []
    breaks = session.recorder.recording.head.subject.breaks
    return again_windows(settings.n_prompt + 1, settings.n_gen, breaks)


def _time_again(session: Session, windows: Sequence[tuple[int, int]], n_total: int) -> Measuring[Ending]:
    """Time windows at depths of the run again, in turns, to tell the context from the machine: the last of `n_total`
    steps. If the engine fails at it, the run stays as it is.
    """
    for number, (depth, n_gen) in enumerate(windows):
        n_done = n_total - (len(windows) - number) * n_gen
        yield Working("decode", n_done, n_total, say("decode.again", depth=depth))
        series = f"{_AGAIN}{depth}/b1/r{number}"
        ending = yield from session.run(DecodeAtDepth(depth - 1, n_gen), series)
        if isinstance(ending, Cancelled):
            return ending
        if not isinstance(ending, Completed):
            break
        yield PointMeasured("", _window(session.recorder.recording.series[series]))
    return Completed()


def _with_slots(setup: EngineConfig, settings: DecodeSettings) -> EngineConfig | None:
    """Return the setup with a slot for each user; None for the run's own."""
    if settings.n_seqs == 1:
        return None
    n_ctx = setup.holding(settings.n_ctx_needed).n_ctx
    return setup if n_ctx is None else setup.with_context(n_ctx // settings.n_seqs, settings.n_seqs)


def _result(
    recording: Recording, times: TokenTimes, prompts_ns: Sequence[int], waiting: str = ""
) -> DecodeResult:
    """Return the result of timed steps after prompts of the same length."""
    from ggbench.stats.decode_timing import serving_of
    from ggbench.stats.linefit import fit_line
    from ggbench.stats.speed import summarize_tokens

    settings = recording.settings(DecodeSettings)
    again = [_window(series) for name, series in recording.series.items() if name.startswith(_AGAIN)]
    fit = None
    if times.is_single:
        fit = fit_line(times.position, times.step_ns, again, recording.head.subject.breaks)
    changed = say("decode.changed") if fit is not None and fit.has_changed else ""
    return DecodeResult(
        n_prompt=settings.n_prompt,
        n_gen=times.n_tokens,
        prefill_ms=statistics.median(prompts_ns) / 1e6 if prompts_ns else None,
        fit=fit,
        latency=summarize_tokens(times),
        limit=recording.last(DecodeLimit),
        unsteady="; ".join(filter(None, (waiting, changed))),
        serving=serving_of(recording.last(ServerFound), recording.requests),
        n_seqs=settings.n_seqs,
    )


def _window(series: Series) -> DecodeWindow:
    return DecodeWindow(series.position[0] - 1, len(series.step_ns), sum(series.step_ns))


def _of_users(recording: Recording, settings: DecodeSettings) -> DecodeResult:
    """Return what several users get, each and together."""
    name, n_seqs = f"decode/p{settings.n_prompt}/b{settings.n_seqs}", settings.n_seqs
    found = [recording.batch_steps(f"{name}/r{index}") for index in range(settings.repeat)]
    timed = [each for each in found if each is not None]
    times = TokenTimes.joined([each.times for each in timed])
    prompts_ns = recording.prompt_ns.get(settings.n_prompt, [])[-len(timed) or None :]
    together = _mean([each.together_tok_s(n_seqs) for each in timed])
    requests = [request for each in timed for request in each.requests]
    if not requests:
        return replace(_result(recording, times, prompts_ns), tok_s_together=together)
    n_received = sum(max(0, each.timing.n_tokens - 1) for each in requests)
    result = _result(recording, times, prompts_ns, _waiting(recording.last(ServerFound), n_seqs))
    return replace(result, n_gen=n_received // n_seqs, tok_s_together=together)


def _waiting(server: ServerFound | None, n_seqs: int) -> str:
    """Return that a server has too few slots; empty if it has enough, as far as is known."""
    if server is None or not server.n_slots or server.n_slots >= n_seqs:
        return ""
    return f"the server has {server.n_slots} slots, so {n_seqs - server.n_slots} of {n_seqs} users waited"


def _mean(rates: Sequence[float | None]) -> float | None:
    """Return the harmonic mean of rates over repetitions of the same length; None if one is unknown."""
    known = [rate for rate in rates if rate]
    return statistics.harmonic_mean(known) if known and len(known) == len(rates) else None


def _at_depths(recording: Recording, settings: DecodeSettings) -> DecodeResult:
    """Return the speed at each depth, and W and B of the line through the means of all windows."""
    from ggbench.stats.linefit import depth_speed, fit_windows, window_speed
    from ggbench.stats.speed import summarize_tokens

    names = recording.timed_series
    by_depth = {
        depth: [_window(recording.series[name]) for name in names if name.startswith(f"decode/d{depth}/")]
        for depth in sorted(settings.depths)
    }
    windows = [window for own in by_depth.values() for window in own]
    latency = window_speed(windows) if windows else None
    if len(settings.depths) == 1:
        latency = summarize_tokens(recording.token_times(names))
    return DecodeResult(
        n_prompt=min(settings.depths),
        n_gen=sum(window.n_gen for window in windows),
        fit=fit_windows(windows, recording.head.subject.breaks),
        latency=latency,
        limit=recording.last(DecodeLimit),
        depths=tuple(depth_speed(depth, own) for depth, own in by_depth.items() if own),
    )


EXPERIMENT = DecodeExperiment()
