"""A forecast: the expected speed of a model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.experiments.forecast.record import ForecastResult, result_of
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.figure import Figure, bounded_text, member
from ggbench.show.metric import B, Metric, W
from ggbench.show.names import row_labels, run_name
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer, several_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import CACHE_TYPES, rows_of
from ggbench.show.words import say
from ggbench.stats.intervals import Estimate
from ggbench.units import format_count

_ANSWERED = 4096
"""The position whose speed is the answer."""
_SHOWN = (1, _ANSWERED, 32768)
_PROMPT = 512


def _expected(key: str, header: str, get: Callable[[ForecastResult], Any], **more: Any) -> Figure[Run]:  # noqa: ANN401 - a figure's members
    return Figure(key, header, lambda run: get(result_of(run)), bounded_text, is_estimate=True, **more)


def _speed_at(n: int) -> Figure[Run]:
    meaning = f"Expected tokens per second with {format_count(n)} in the cache."
    priority = 0 if n == _ANSWERED else 2
    return _expected(
        f"tok_s_{n}",
        f"tok/s at {format_count(n)}",
        lambda found: dict(found.tok_s).get(n),
        meaning=meaning,
        priority=priority,
    )


_FIGURES = (
    *map(_speed_at, _SHOWN),
    _expected(
        f"prefill_ms_{_PROMPT}", f"prompt of {_PROMPT}", lambda found: dict(found.prefill_ms).get(_PROMPT), unit="ms",
        meaning="Expected time to read such a prompt.", priority=3,
    ),
    _expected("b_ms", "B", lambda found: found.b_ms, unit="ms", meaning="Expected latency of the first token."),
    _expected(
        "w_tokens_per_ms", "W", lambda found: found.w_tokens_per_ms, unit="tokens/ms", priority=1,
        meaning="Expected tokens of context that add 1 ms to a token's latency.",
    ),
)  # fmt: skip
_BASIS = member("basis", "from", path="result.basis", meaning="Their source.")
_DOCUMENTED = (*_FIGURES, *CACHE_TYPES, _BASIS)
_HEADLINE = _speed_at(_ANSWERED)


class _Length(Record):
    """What is expected at a length: of the context, and of a prompt."""

    n_tokens: int
    tok_s: Estimate | None
    prefill_s: Estimate | None


_LENGTHS = (
    member("n_tokens", "tokens"),
    member("tok_s", "speed after them", bounded_text, unit="tok/s"),
    member("prefill_s", "read as a prompt in", bounded_text, unit="s"),
)


class ForecastPresenter(Presenter):
    kind = "forecast"
    documents = RunDocuments(
        "forecast", _DOCUMENTED, "The expected speed of a model.", several_as="forecast.all"
    )
    has_line = False
    has_samples = False
    no_answer = "no speed is known"
    headline = _HEADLINE

    def answer(self, run: Run) -> str:
        """Return `Expected 2.4 ±0.16 tok/s at a context of 4,096, from twins of 2 and 6 of 32 layers.`"""
        found = result_of(run)
        known = [(n, speed) for n, speed in found.tok_s if n <= _ANSWERED]
        if not known:
            return ""
        n, speed = known[-1]
        return say("forecast.expected", tok_s=bounded_text(speed), n_ctx=n, basis=found.basis)

    def has_details(self, run: Run) -> bool:
        return result_of(run).b_ms is not None

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return _as_expected(W, "w_tokens_per_ms"), _as_expected(B, "b_ms")

    def details(self, run: Run) -> Answer:
        found = result_of(run)
        speeds = dict(found.tok_s)
        prompts = {n: Estimate(ms.value / 1e3, ms.low / 1e3, ms.high / 1e3) for n, ms in found.prefill_ms}
        lengths = [_Length(n, speeds.get(n), prompts.get(n)) for n in sorted({*speeds, *prompts})]
        parts = [Table(_LENGTHS, lengths)] if lengths else []
        line = [
            ("B", f"{bounded_text(found.b_ms)} ms"),
            ("W", f"{bounded_text(found.w_tokens_per_ms)} tokens/ms"),
        ]
        why = [Facts(line, "Latency of a token: (n - 1) / W + B")] if found.b_ms is not None else []
        return run_answer(
            run, Answer(f"{run_name(run)}: {self.ending(run)}", _plan_command([run]), parts, why=why)
        )

    def table(self, runs: Sequence[Run]) -> Answer:
        names = row_labels([run.subject for run in runs])
        speeds = zip(map(_answered, runs), names, runs, strict=True)
        known = [(speed, name, row) for speed, name, row in speeds if speed is not None]
        text = ""
        if known:
            best, quant, row = max(known, key=lambda each: each[0].value)
            is_alike = sum(speed.high >= best.low for speed, *_ in known) > 1
            key = "alike" if is_alike else "fastest"
            text = say(f"forecast.{key}", quant=quant, tok_s=_HEADLINE.text(row), n_ctx=_ANSWERED)
        table, sources = (Table((*rows_of(runs), *each), runs) for each in (_FIGURES, [_BASIS]))
        return several_answer(runs, names, Answer(text, _plan_command(runs), [table], why=[sources]))


def _answered(run: Run) -> Estimate | None:
    return dict(result_of(run).tok_s).get(_ANSWERED)


def _plan_command(runs: Sequence[Run]) -> str:
    """Return the command that says whether they fit, with these speeds; empty if no speed is known."""
    known = [run.subject for run in runs if result_of(run).tok_s]
    if not known:
        return ""
    model = known[0].model
    return shlex.join(["ggbench", "plan", model, *(each.quant for each in known if each.model == model)])


def _as_expected(metric: Metric, name: str) -> Metric:
    def expected(run: Run) -> Estimate | None:
        found = run.result_as(ForecastResult)
        return getattr(found, name) if found else None

    return replace(metric, figure=replace(metric.figure, get=expected))


PRESENTER = ForecastPresenter()
