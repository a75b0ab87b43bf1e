"""The numbers of the running job, beside its plot."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ggbench.engines.memory import DeviceBuffers
from ggbench.experiments.maxctx.record import ContextResult
from ggbench.runs.progress import Stage
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import b_text, tok_s_text, w_text
from ggbench.show.presenter import presenter_of
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.text import shorten
from ggbench.tui.live_job import LiveJob, LiveNumbers
from ggbench.tui.run_queue import JobState, QueueItem
from ggbench.units import format_bytes, format_count, format_duration, format_ms, format_percent

_WIDTH, _BAR_WIDTH, _DEVICE_WIDTH = 28, 22, 10
_DONE: dict[Stage, str] = {"download": "fetched", "write": "written"}


class Numbers(Widget):
    """Progress, speed, W and B with their share of the bandwidth's speed, percentiles, and buffers by device."""

    lines: reactive[tuple[str, ...]] = reactive(())

    def show(self, live: LiveJob, item: QueueItem, *, paused: bool) -> None:
        """Show the current state of a job; redraw only if a line changed."""
        self.lines = tuple(number_lines(live, live.numbers(), item, paused=paused))

    def render(self) -> Text:
        """Return the lines of the last `show`."""
        return Text("\n".join(self.lines), no_wrap=True)


def number_lines(live: LiveJob, numbers: LiveNumbers, item: QueueItem, *, paused: bool) -> list[str]:
    """Return lines of at most 28 characters, without those that are still unknown."""
    state, working, presenter = item.state, live.working, presenter_of(item.kind)
    lines = [f"paused ({state.value})" if paused and not state.is_over else state.value]
    share = live.share
    if share is None and numbers.n_total:
        share = numbers.n_done / numbers.n_total
    if share is not None:
        full = round(share * _BAR_WIDTH)
        lines.append(f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:.0%}")
    if working is not None and working.is_bytes and working.done is not None:
        done = f"{format_bytes(round(working.done))} of {format_bytes(working.total)}"
        lines.append(f"{done} {_DONE[working.stage]}")
    if (left_s := live.left_s) is not None:
        lines.append(f"ETA   {format_duration(left_s)}")
    if numbers.n_total:
        lines.append(f"{format_count(numbers.n_done)} of {format_count(numbers.n_total)} tokens")
        if state is JobState.DECODING and presenter.has_line and numbers.eta_s is not None:
            lines.append(f"ETA   {format_duration(numbers.eta_s)}")
    found = None if item.run is None else QuantSummary.of([item.run])
    if numbers.latency is not None and presenter.has_line:
        lines += _latency_lines(numbers, numbers.latency, live.limit)
    lines += presenter.live_lines(live.plotted(""))
    if found is not None and found.context is not None:
        lines += _context_lines(found.context, found.subject.n_ctx_train)
    memory = live.memory if item.run is None else item.run.memory  # a search goes on after the context that it found
    if memory is not None and memory.n_ctx is not None:
        lines.append(f"n_ctx {format_count(memory.n_ctx)}")
        for buffers in memory.buffers:
            lines += _buffer_lines(buffers)
    if live.point:
        lines.append(shorten(live.point, _WIDTH))
    return lines


def _latency_lines(numbers: LiveNumbers, latency: LatencySummary, limit: DecodeLimit | None) -> list[str]:
    """Return speed, W and B with their intervals, or bounded where the fit gives no value."""
    fit = numbers.fit
    lines = [_with_unit(f"speed {tok_s_text(latency)}", "tok/s")]
    if fit is None:
        lines.append(f"W, B  from {format_count(numbers.n_for_line)} tokens on")
    else:
        lines.append(_with_unit(f"W     {w_text(fit)}", "tokens/ms"))
        lines.append(_with_unit(f"B     {b_text(fit)}", "ms"))
        lines += _limit_lines(fit, limit)
    if latency.p50_ms is not None:
        lines.append(_with_unit(f"p50   {format_ms(latency.p50_ms)}, p99 {format_ms(latency.p99_ms)}", "ms"))
    return lines


def _limit_lines(fit: LineFit, limit: DecodeLimit | None) -> list[str]:
    """Return the shares of the speed that the bandwidth allows, where W or B is known."""
    shares = []
    if fit.w_tokens_per_ms is not None and limit and limit.w_tokens_per_ms:
        shares.append(f"W {format_percent(fit.w_tokens_per_ms / limit.w_tokens_per_ms)}")
    if fit.b_ms is not None and limit:
        shares.append(f"B {format_percent(limit.b_ms / fit.b_ms)}")
    return [f"bandwidth {', '.join(shares)}"] if shares else []


def _with_unit(text: str, unit: str) -> str:
    """Append the unit if an interval leaves room for it."""
    return f"{text} {unit}" if len(text) + 1 + len(unit) <= _WIDTH else text


def _buffer_lines(buffers: DeviceBuffers) -> list[str]:
    """Return a line for each non-empty kind of buffer on a device."""
    kinds = {
        "weights": buffers.weight_bytes,
        "KV": buffers.kv_bytes,
        "compute": buffers.compute_bytes,
        "output": buffers.output_bytes,
    }
    device = shorten(buffers.device, _DEVICE_WIDTH)
    return [f"{name:<8}{format_bytes(n_bytes):>9} {device}" for name, n_bytes in kinds.items() if n_bytes]


def _context_lines(found: ContextResult, n_ctx_train: int | None) -> list[str]:
    """Return the predicted and the found n_ctx, without those that are unknown."""
    counts = {
        "theory": found.plan.theory_n_ctx,
        "planned": found.plan.planned_n_ctx,
        "works": found.max_n_ctx,
        "does not": found.first_fail_n_ctx,
        "trained": n_ctx_train,
    }
    lines = [f"{name:<8} {format_count(n_ctx):>12}" for name, n_ctx in counts.items() if n_ctx is not None]
    if found.plan.budget_bytes is not None:
        lines.append(f"{'budget':<8} {format_bytes(found.plan.budget_bytes):>12}")
    return ["n_ctx", *lines] if lines else []
