"""A decode: every token of a long generation timed, and latency(n) = (n - 1) / W + B fitted."""

from __future__ import annotations

import statistics
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Decode, DecodeAtDepth, EngineConfig, Prefill, Workload
from ggbench.engines.endings import Completed
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.machine_use import throttled
from ggbench.runs.recording import Recording
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, DepthSpeed, ServerFound
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.session import Session
    from ggbench.stats.speed_estimate import RunSpeed


_PREFILL_REPEAT = 3


class DecodeExperiment(Experiment):
    """Load, read the prompt a few times, warm up, then decode as often as requested, or at each depth."""

    kind: ClassVar[str] = "decode"
    settings_type = DecodeSettings
    result_type = DecodeResult

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        if isinstance(settings, DecodeSettings) and settings.depths and not setup.loads_gguf:
            raise UsageError(
                "--n-depth needs a GGUF: only llama.cpp's cache can be filled without reading a prompt",
                "omit it; a decode of as many tokens also shows the speed at a depth",
            )
        super().check(setup, settings)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Run the repetitions one after the other, each from an empty cache."""
        settings = session.settings(DecodeSettings)
        yield from session.prepare()
        ending = yield from session.open()
        if not isinstance(ending, Completed):
            return ending
        n_prompt, name = settings.n_prompt, f"p{settings.n_prompt}/b1"
        steps: list[tuple[Workload, str]] = [
            (Prefill(n_prompt, _PREFILL_REPEAT, warmup=1), ""),
            (Decode(n_prompt, settings.n_warmup), f"warmup/{name}/r0"),
            *((Decode(n_prompt, settings.n_gen), f"decode/{name}/r{index}") for index in range(settings.repeat)),
        ]
        if settings.depths:  # in turns, so that drift of the machine affects all depths alike
            rounds = [(depth, index) for index in range(settings.repeat) for depth in settings.depths]
            steps = [
                (DecodeAtDepth(0, settings.n_warmup), "warmup/d0/b1/r0"),
                # one token is decoded there before the timed ones, so the cache is never empty
                *((DecodeAtDepth(max(0, n - 1), settings.n_gen), f"decode/d{n}/b1/r{index}") for n, index in rounds),
            ]
        n_total = settings.n_gen * settings.repeat * (len(settings.depths) or 1)
        for workload, series in steps:
            ending = yield from session.run(workload, series, n_total=n_total)
            if not isinstance(ending, Completed):
                return ending
        return ending

    def reduce(self, recording: Recording) -> DecodeResult:
        from ggbench.stats.decode_timing import serving_of
        from ggbench.stats.linefit import fit_line
        from ggbench.stats.speed import summarize_tokens, unsteady

        settings = recording.settings(DecodeSettings)
        if settings.depths:
            return _at_depths(recording, settings)
        times = recording.token_times(recording.timed_series)
        own = recording.prompt_ns.get(settings.n_prompt)
        uneven = unsteady(times.position, times.step_ns) if times.is_single else ""
        return DecodeResult(
            n_prompt=settings.n_prompt,
            n_gen=times.n_tokens,
            prefill_ms=statistics.median(own) / 1e6 if own else None,
            fit=fit_line(times.position, times.step_ns),
            latency=summarize_tokens(times),
            limit=recording.last(DecodeLimit),
            unsteady="; ".join(filter(None, (uneven, throttled(recording.gpu_use), *recording.machine_changes))),
            serving=serving_of(recording.last(ServerFound), recording.requests),
        )

    def speed_of(self, run: Run) -> RunSpeed | None:
        from ggbench.stats.speed_estimate import measured_speed, measured_steps, rates_of_line

        found, settings = run.result, run.head.settings
        if not isinstance(found, DecodeResult) or not isinstance(settings, DecodeSettings):
            return None
        if settings.depths:
            return _speed_at_depths(run.run_id, found)
        if found.latency is None:
            return None
        n_gen = min(settings.n_gen, found.n_gen)
        middle = found.n_prompt + (n_gen + 1) // 2
        steps, limit, fit = measured_steps([(middle, found.latency)], found.fit, found.limit), found.limit, found.fit
        rates = None
        if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
            rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
        elif limit is not None:  # no line separates weights from KV
            rates = (limit.bandwidth_bytes_per_s * limit.b_ms * found.latency.tok_s / 1e3,) * 2
        is_steady, reach = not run.unsteady, found.n_prompt + n_gen
        return measured_speed(run.run_id, steps, reach, is_steady=is_steady, rates=rates)


def _at_depths(recording: Recording, settings: DecodeSettings) -> DecodeResult:
    """Return the speed at each depth, and W and B of the line through the means of all windows."""
    from ggbench.stats.linefit import fit_windows, window_speed
    from ggbench.stats.speed import summarize_tokens, unsteady

    windows, speeds, disturbed = list[DecodeWindow](), list[DepthSpeed](), list[str]()
    for depth in settings.depths:
        names = [name for name in recording.timed_series if name.startswith(f"decode/d{depth}/")]
        times, own = recording.token_times(names), [recording.series[name] for name in names]
        latency = summarize_tokens(times)
        if latency is None:
            continue
        found = [DecodeWindow(each.position[0] - 1, len(each.step_ns), sum(each.step_ns)) for each in own]
        windows += found
        interval = latency.tok_s_ci95 or window_speed(found).tok_s_ci95
        speeds.append(DepthSpeed(depth, found[0].n_gen, latency.tok_s, len(found), interval))
        if reason := unsteady(times.position, times.step_ns):
            disturbed.append(f"at depth {format_count(depth)}: {reason}")
    return DecodeResult(
        n_prompt=min(settings.depths),
        n_gen=sum(window.n_gen for window in windows),
        fit=fit_windows(windows),
        latency=window_speed(windows) if windows else None,
        limit=recording.last(DecodeLimit),
        unsteady="; ".join(filter(None, (*disturbed, throttled(recording.gpu_use), *recording.machine_changes))),
        depths=tuple(sorted(speeds, key=lambda each: each.n_depth)),
    )


def _speed_at_depths(run_id: int | None, found: DecodeResult) -> RunSpeed | None:
    """Return the speeds at the depths, and beyond them if they define a line; None without an interval."""
    from ggbench.stats.speed_estimate import RunSpeed, measured_levels, measured_steps, rates_of_line

    fit, limit, levels = found.fit, found.limit, measured_levels(found.depths)
    if not levels:
        return None
    steps = measured_steps([(each.n_depth + (each.n_gen + 1) // 2, each) for each in found.depths], fit, limit)
    rates = None
    if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
        rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
    return RunSpeed(
        "measured",
        f"run {run_id}",
        steps or levels,
        first=levels[0][0],
        reach=levels[-1][0],
        is_steady=not found.unsteady,
        rates=rates,
        has_line=bool(steps),
    )


EXPERIMENT = DecodeExperiment()
