"""The numbers of the running job, beside its plot."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from ggbench.plain import shorten
from ggbench.records.memory import DeviceBuffers
from ggbench.records.run import Certificate
from ggbench.records.speed import DecodeLimit
from ggbench.report.columns import b_text, w_text
from ggbench.tui.live_trial import LiveNumbers, LiveTrial
from ggbench.tui.run_queue import JobState, QueueItem
from ggbench.units import format_bytes, format_count, format_duration, format_ms, format_number, format_percent

_WIDTH, _BAR_WIDTH, _DEVICE_WIDTH = 28, 22, 10


class Numbers(Widget):
    """Progress, W and B with their share of the limit, speed, percentiles, and buffers by device."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = Text()

    def show(self, live: LiveTrial, item: QueueItem, *, paused: bool) -> None:
        """Show the current state of a job; redraw only if the text changed."""
        text = Text("\n".join(number_lines(live, live.numbers(), item, paused=paused)), no_wrap=True)
        if text.plain != self._text.plain:
            self._text = text
            self.refresh()

    def render(self) -> Text:
        """Return the lines of the last `show`."""
        return self._text


def number_lines(live: LiveTrial, numbers: LiveNumbers, item: QueueItem, *, paused: bool) -> list[str]:
    """Return lines of at most 28 characters, without those that are still unknown."""
    state = item.state
    lines = [f"paused ({state.value})" if paused and not state.is_over else state.value]
    share = _share(live, numbers, state)
    if share is not None:
        full = round(share * _BAR_WIDTH)
        lines.append(f"{'█' * full}{'░' * (_BAR_WIDTH - full)} {share:.0%}")
    if state is JobState.PREPARING and live.preparing is not None:
        verb = "fetched" if live.preparing.is_download else "written"
        lines.append(f"{format_bytes(live.preparing.done_bytes)} of {format_bytes(live.preparing.total_bytes)} {verb}")
    if numbers.n_total:
        lines.append(f"{format_count(numbers.n_done)} of {format_count(numbers.n_total)} tokens")
        if state is JobState.DECODING:
            lines.append(f"ETA   {format_duration(numbers.eta_s)}")
    if numbers.n_done:
        lines += _latency_lines(numbers, live.limit, item.row)
    if item.certificate is not None:
        lines += _certificate_lines(item.certificate)
    if live.n_ctx is not None:
        lines.append(f"n_ctx {format_count(live.n_ctx)}")
    for buffers in live.buffers:
        lines += _buffer_lines(buffers)
    if live.prompt is not None:
        n_prompt, prefill_ns = live.prompt
        lines.append(f"prompt of {n_prompt}: {format_ms(prefill_ns / 1e6)} ms")
    return lines


def _share(live: LiveTrial, numbers: LiveNumbers, state: JobState) -> float | None:
    if state is JobState.PREPARING and live.preparing is not None and live.preparing.total_bytes:
        return live.preparing.done_bytes / live.preparing.total_bytes
    if state is JobState.LOADING:
        return live.load_share
    if state is JobState.SEARCHING:
        return live.fill_share
    return numbers.n_done / numbers.n_total if numbers.n_total else None


def _latency_lines(numbers: LiveNumbers, limit: DecodeLimit | None, row: Row | None) -> list[str]:
    """Return W and B, from the row with intervals once there is one, or bounded where the fit gives no value."""
    w, b = (row.fit.w_tokens_per_ms, row.fit.b_ms) if row and row.fit else (numbers.w_tokens_per_ms, numbers.b_ms)
    shares = []
    if w and limit and limit.w_tokens_per_ms:
        shares.append(f"W {format_percent(w / limit.w_tokens_per_ms)}")
    if b and limit:
        shares.append(f"B {format_percent(limit.b_ms / b)}")
    fit = row.fit if row is not None else None
    return [
        f"speed {format_number(numbers.tok_s)} tok/s",
        _with_unit(f"W     {w_text(fit) if fit else format_number(w)}", "tokens/ms"),
        _with_unit(f"B     {b_text(fit) if fit else format_ms(b)}", "ms"),
        *([f"limit {', '.join(shares)}"] if shares else []),
        _with_unit(f"p50   {format_ms(numbers.p50_ms)}, p99 {format_ms(numbers.p99_ms)}", "ms"),
    ]


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


def _certificate_lines(found: Certificate) -> list[str]:
    """Return the predicted and the found n_ctx, without those that are unknown."""
    counts = {
        "theory": found.theory_n_ctx,
        "planned": found.planned_n_ctx,
        "works": found.max_n_ctx,
        "does not": found.first_fail_n_ctx,
        "trained": found.n_ctx_train,
    }
    lines = [f"{name:<8} {format_count(n_ctx):>12}" for name, n_ctx in counts.items() if n_ctx is not None]
    if found.budget_bytes is not None:
        lines.append(f"{'budget':<8} {format_bytes(found.budget_bytes):>12}")
    return ["n_ctx", *lines] if lines else []
