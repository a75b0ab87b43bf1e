"""A decode: every token of a long generation timed, and latency(n) = (n - 1) / W + B fitted."""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

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
from ggbench.engines.endings import Completed
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.machine_use import throttled
from ggbench.runs.recording import Recording
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, DepthSpeed, ServerFound, TokenTimes
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.session import Session
    from ggbench.stats.speed_curve import SpeedCurve


_PREFILL_REPEAT = 3


class DecodeExperiment(Experiment):
    """Load, read the prompt a few times, warm up, then decode as often as requested, for several users, or at each
    depth.
    """

    kind: ClassVar[str] = "decode"
    settings_type = DecodeSettings
    result_type = DecodeResult
    keeps_n_ctx: ClassVar[bool] = True

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        if isinstance(settings, DecodeSettings) and settings.depths:
            setup.require(DecodeAtDepth)
        super().check(setup, settings)
        check_users(setup, settings.n_seqs if isinstance(settings, DecodeSettings) else 1)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Run the repetitions one after the other, each from an empty cache."""
        settings = session.settings(DecodeSettings)
        yield from session.prepare()
        ending = yield from session.open(_with_slots(session.setup, settings))
        if not isinstance(ending, Completed):
            return ending
        n_seqs = settings.n_seqs
        if n_seqs > 1 and (limit := session.limit(n_seqs)) is not None:
            session.recorder.observe(limit)
        n_total = settings.n_gen * settings.repeat * (len(settings.depths) or 1)
        for workload, series in _steps(settings):
            ending = yield from session.run(workload, series, n_total=n_total)
            if not isinstance(ending, Completed):
                return ending
        return ending

    def reduce(self, recording: Recording) -> DecodeResult:
        from ggbench.stats.speed import unsteady

        settings = recording.settings(DecodeSettings)
        if settings.depths:
            return _at_depths(recording, settings)
        if settings.n_seqs > 1:
            return _of_users(recording, settings)
        times = recording.token_times(recording.timed_series)
        uneven = unsteady(times.position, times.step_ns) if times.is_single else ""
        return _result(recording, times, recording.prompt_ns.get(settings.n_prompt, []), uneven)

    def speed_of(self, run: Run, n_seqs: int = 1) -> SpeedCurve | None:
        from ggbench.stats.speed_curve import (
            measured_speed,
            measured_steps,
            rates_of_line,
            rates_of_window,
            speed_at_depths,
        )

        found, settings = run.result, run.head.settings
        if (
            not isinstance(found, DecodeResult)
            or not isinstance(settings, DecodeSettings)
            or found.n_seqs != n_seqs
        ):
            return None
        if settings.depths:
            return speed_at_depths(
                run.run_id, found.depths, found.fit, found.limit, is_steady=not found.unsteady
            )
        if found.latency is None:
            return None
        n_gen = min(settings.n_gen, found.n_gen)
        limit, fit, latency = found.limit, found.fit, found.latency
        window = DepthSpeed(found.n_prompt, n_gen, latency.tok_s, settings.repeat, latency.tok_s_ci95)
        steps = measured_steps([window], fit, limit)
        rates = None
        if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
            rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
        elif limit is not None and latency.tok_s_ci95 is not None:
            rates = rates_of_window(limit, window)
        is_steady, reach = not run.unsteady, found.n_prompt + n_gen
        return measured_speed(run.run_id, steps, reach, is_steady=is_steady, rates=rates)


def _steps(settings: DecodeSettings) -> list[tuple[Workload, str]]:
    """Return the workloads in order, each with its series."""
    if settings.depths:  # in turns, so that drift of the machine affects all depths alike
        rounds = [(depth, index) for index in range(settings.repeat) for depth in settings.depths]
        return [
            (DecodeAtDepth(0, settings.n_warmup), "warmup/d0/b1/r0"),
            # one token is decoded there before the timed ones, so the cache is never empty
            *(
                (DecodeAtDepth(max(0, n - 1), settings.n_gen), f"decode/d{n}/b1/r{index}")
                for n, index in rounds
            ),
        ]
    n_prompt, n_seqs, name = settings.n_prompt, settings.n_seqs, f"p{settings.n_prompt}/b{settings.n_seqs}"

    def decode(n_gen: int) -> Workload:
        return Decode(n_prompt, n_gen) if n_seqs == 1 else BatchedDecode(n_prompt, n_gen, n_seqs)

    prompts: list[tuple[Workload, str]] = (
        [(Prefill(n_prompt, _PREFILL_REPEAT, warmup=1), "")] if n_seqs == 1 else []
    )
    timed = [(decode(settings.n_gen), f"decode/{name}/r{index}") for index in range(settings.repeat)]
    return [*prompts, (decode(settings.n_warmup), f"warmup/{name}/r0"), *timed]


def _with_slots(setup: EngineConfig, settings: DecodeSettings) -> EngineConfig | None:
    """Return the setup with a slot for each user; None for the run's own."""
    if settings.n_seqs == 1:
        return None
    n_ctx = setup.holding(settings.n_ctx_needed).n_ctx
    return setup if n_ctx is None else setup.with_context(n_ctx // settings.n_seqs, settings.n_seqs)


def _result(recording: Recording, times: TokenTimes, prompts_ns: Sequence[int], uneven: str) -> DecodeResult:
    """Return the result of timed steps after prompts of the same length."""
    from ggbench.stats.decode_timing import serving_of
    from ggbench.stats.linefit import fit_line
    from ggbench.stats.speed import summarize_tokens

    settings = recording.settings(DecodeSettings)
    return DecodeResult(
        n_prompt=settings.n_prompt,
        n_gen=times.n_tokens,
        prefill_ms=statistics.median(prompts_ns) / 1e6 if prompts_ns else None,
        fit=fit_line(times.position, times.step_ns),
        latency=summarize_tokens(times),
        limit=recording.last(DecodeLimit),
        unsteady=_disturbances(recording, uneven),
        serving=serving_of(recording.last(ServerFound), recording.requests),
        n_seqs=settings.n_seqs,
    )


def _disturbances(recording: Recording, *found: str) -> str:
    return "; ".join(filter(None, (*found, throttled(recording.gpu_use), *recording.machine_changes)))


def _of_users(recording: Recording, settings: DecodeSettings) -> DecodeResult:
    """Return what several users get, each and together."""
    from ggbench.stats.requests import request_rates
    from ggbench.stats.speed import unsteady

    name, n_seqs = f"decode/p{settings.n_prompt}/b{settings.n_seqs}", settings.n_seqs
    found = [recording.batch_steps(f"{name}/r{index}") for index in range(settings.repeat)]
    timed = [each for each in found if each is not None]
    times = TokenTimes.joined([each.times for each in timed])
    prompts_ns = recording.prompt_ns.get(settings.n_prompt, [])[-len(timed) or None :]
    together = _mean([each.together_tok_s(n_seqs) for each in timed])
    requests = [request for each in timed for request in each.requests]
    if not requests:
        uneven = unsteady(times.position, times.step_ns)
        return replace(_result(recording, times, prompts_ns, uneven), tok_s_together=together)
    n_received = sum(max(0, each.timing.n_tokens - 1) for each in requests)
    result = _result(recording, times, prompts_ns, _waiting(recording.last(ServerFound), n_seqs))
    rates = request_rates(requests)
    return replace(result, n_gen=n_received // n_seqs, tok_s_together=together, requests=rates)


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
    from ggbench.stats.linefit import fit_windows, window_speed
    from ggbench.stats.speed import summarize_tokens, unsteady

    windows, speeds, disturbed = list[DecodeWindow](), list[DepthSpeed](), list[str]()
    latency = None
    for depth in settings.depths:
        names = [name for name in recording.timed_series if name.startswith(f"decode/d{depth}/")]
        times, own = recording.token_times(names), [recording.series[name] for name in names]
        latency = summarize_tokens(times)
        if latency is None:
            continue
        found = [DecodeWindow(each.position[0] - 1, len(each.step_ns), sum(each.step_ns)) for each in own]
        windows += found
        interval = latency.tok_s_ci95 or window_speed(found).tok_s_ci95
        latency = replace(latency, tok_s_ci95=interval)
        speeds.append(DepthSpeed(depth, found[0].n_gen, latency.tok_s, len(found), interval))
        if reason := unsteady(times.position, times.step_ns):
            disturbed.append(f"at depth {format_count(depth)}: {reason}")
    if len(settings.depths) > 1:
        latency = window_speed(windows) if windows else None
    return DecodeResult(
        n_prompt=min(settings.depths),
        n_gen=sum(window.n_gen for window in windows),
        fit=fit_windows(windows),
        latency=latency,
        limit=recording.last(DecodeLimit),
        unsteady=_disturbances(recording, *disturbed),
        depths=tuple(sorted(speeds, key=lambda each: each.n_depth)),
    )


EXPERIMENT = DecodeExperiment()
