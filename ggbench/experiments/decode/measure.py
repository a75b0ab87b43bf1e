"""A decode: every token of a long generation timed, and latency(n) = (n - 1) / W + B fitted."""

from __future__ import annotations

import statistics
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Decode, Prefill
from ggbench.engines.endings import Completed
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.machine_use import throttled
from ggbench.runs.recording import Recording
from ggbench.stats.decode_timing import DecodeLimit, ServerFound

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.run import Run
    from ggbench.runs.session import Session
    from ggbench.stats.speed_estimate import RunSpeed


_PREFILL_REPEAT = 3


class DecodeExperiment(Experiment):
    """Load, read the prompt a few times, warm up, then decode as often as asked."""

    kind: ClassVar[str] = "decode"
    settings_type = DecodeSettings
    result_type = DecodeResult

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """The repetitions follow each other, each from an empty cache."""
        settings = session.settings(DecodeSettings)
        yield from session.prepare()
        ending = yield from session.open()
        if not isinstance(ending, Completed):
            return ending
        n_prompt, name = settings.n_prompt, f"p{settings.n_prompt}/b1"
        steps = [
            (Prefill(n_prompt, _PREFILL_REPEAT, warmup=1), ""),
            (Decode(n_prompt, settings.n_warmup), f"warmup/{name}/r0"),
            *((Decode(n_prompt, settings.n_gen), f"decode/{name}/r{index}") for index in range(settings.repeat)),
        ]
        for workload, series in steps:
            ending = yield from session.run(workload, series, n_total=settings.n_gen * settings.repeat)
            if not isinstance(ending, Completed):
                return ending
        return ending

    def reduce(self, recording: Recording) -> DecodeResult:
        from ggbench.stats.decode_timing import serving_of
        from ggbench.stats.linefit import fit_line
        from ggbench.stats.speed import summarize_tokens, unsteady

        times, settings = recording.token_times(recording.timed_series), recording.settings(DecodeSettings)
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
        if not isinstance(found, DecodeResult) or not isinstance(settings, DecodeSettings) or found.latency is None:
            return None
        n_gen = min(settings.n_gen, found.n_gen)
        middle = found.n_prompt + (n_gen + 1) // 2
        steps, limit, fit = measured_steps([(middle, found.latency)], found.fit, found.limit), found.limit, found.fit
        rates = None
        if limit is not None and fit is not None and fit.b_ms and fit.w_tokens_per_ms:
            rates = rates_of_line(limit, fit.b_ms, fit.w_tokens_per_ms)
        elif limit is not None:  # no line tells weights and KV apart
            rates = (limit.bandwidth_bytes_per_s * limit.b_ms * found.latency.tok_s / 1e3,) * 2
        is_steady, reach = not found.unsteady, found.n_prompt + n_gen
        return measured_speed(run.run_id, steps, reach, is_steady=is_steady, rates=rates)


EXPERIMENT = DecodeExperiment()
