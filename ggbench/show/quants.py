"""Tables of measured quants and of stored runs, and one quant in full."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.fields import config_options
from ggbench.machine.readings import name_processes
from ggbench.machine.records import GpuUse, MachineReading
from ggbench.runs.run import STILL_RUNNING, DecodeTiming, Run
from ggbench.runs.store.runs import RUNNING
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.against import against_tables, nearest_to
from ggbench.show.charts import (
    Chart,
    LineChart,
    PlottedRun,
    batch_sizes,
    decode_bars,
    latency_figure,
    memory_stacks,
    prompt_speed,
)
from ggbench.show.columns import Value, bench_columns, imported_text, note
from ggbench.show.glossary import MARKED, MARKED_RUN, UNSTEADY
from ggbench.show.listed_runs import ListedRun, named_runs
from ggbench.show.machine import run_page, serving_facts
from ggbench.show.metric import Metric, decode_metrics, decoded_lengths, vary
from ggbench.show.names import model_names, quant_name, row_labels
from ggbench.show.presenter import Presenter, all_columns, column_of
from ggbench.show.tables import (
    TWIN_CAPTION,
    Cells,
    Facts,
    facts_table,
    fitted_table,
    left,
    names,
    new_table,
    notes,
    right,
    twin_caption,
)
from ggbench.show.text import (
    b_text,
    csv_text,
    markdown_escaped,
    on_off,
    swa_text,
    tok_s_text,
    w_text,
    without_formula,
)
from ggbench.text import in_words, sanitize
from ggbench.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_ms,
    format_number,
    format_params,
    format_percent,
    with_unit,
)


def row_details(
    summary: QuantSummary, *, folded: bool = False, readings: Sequence[MachineReading] = ()
) -> RenderableType:
    parts: list[RenderableType] = [facts_table("Model", _model(summary))]
    if summary.memory.buffers:
        parts.append(memory_table(summary.memory))
    if summary.prefills:
        parts.append(_prefills(summary))
    if summary.depths:
        parts.append(_depths(summary))
    bandwidth: Facts = ()
    if limit := summary.limit:
        bandwidth = (
            ("bandwidth", f"{format_bandwidth(limit.bandwidth_bytes_per_s)}, {limit.bandwidth_source}"),
            ("W", f"{format_number(limit.w_tokens_per_ms)} tokens/ms"),
            ("B", f"{format_ms(limit.b_ms)} ms"),
        )
    sections = {
        "Latency": _latency(summary, summary.decode) if summary.decode else (),
        "Server": serving_facts(summary.run),
        "Limit by memory bandwidth": bandwidth,
        "GPU while timing": _gpu(summary.gpu_use) if summary.gpu_use else (),
    }
    parts += [facts_table(title, facts) for title, facts in sections.items() if facts]
    return run_page(summary.run, _heading(summary), parts, folded=folded, readings=readings)


def prefill_table(summary: QuantSummary) -> RenderableType:
    return run_page(summary.run, _heading(summary), [facts_table("Model", _model(summary)), _prefills(summary)])


def _heading(summary: QuantSummary) -> Text:
    heading = Text(quant_name(summary.subject), style="bold")
    completed = summary.outcome is Outcome.COMPLETED
    outcome = "running" if summary.run.reason == STILL_RUNNING else summary.outcome.text
    heading.append(f"  {outcome}", style="" if completed else "bold red")
    if about := note(summary, is_marked=True):
        heading.append(f"\n{about}", style="yellow")
    if summary.subject.source == "twin":
        heading.append(f"\n{TWIN_CAPTION}", style="not bold dim")
    return heading


def _model(summary: QuantSummary) -> Facts:
    subject = summary.subject
    size = f", {format_bytes(subject.file_bytes)}" if subject.file_bytes else ""
    parameters = f"{format_params(subject.n_params)} at {format_number(subject.bpw)} BPW"
    proof = "proven by a decode" if summary.max_n_ctx_verified else "not proven"
    return [
        ("file", subject.file),
        ("source", f"{subject.source}{size}"),
        ("header", f"sha256 {subject.header_sha256}" if subject.header_sha256 else ""),
        ("parameters", parameters if subject.n_params is not None else ""),
        (
            "quant",
            "taken from the model's name; the server does not report it" if subject.is_quant_from_name else "",
        ),
        ("context", ", ".join(filter(None, (_context(summary), _decoded(summary))))),
        (
            "max n_ctx",
            f"{format_count(summary.max_n_ctx)} tokens, {proof}" if summary.max_n_ctx is not None else "",
        ),
        *_loaded(summary),
    ]


def _context(summary: QuantSummary) -> str:
    n_ctx, trained = summary.memory.n_ctx, summary.subject.n_ctx_train
    if not n_ctx:
        return ""
    if trained and n_ctx > trained * summary.setup.n_streams:
        return f"{format_count(n_ctx)} tokens, beyond the {format_count(trained)} that it was trained for"
    return f"{format_count(n_ctx)} tokens"


def _decoded(summary: QuantSummary) -> str:
    decode = summary.decode
    if decode is None:
        return ""
    prompt = f"prompt {format_count(decode.n_prompt)}"
    if not decode.n_gen:
        return prompt
    repeat = f" x {summary.repeat}" if (summary.repeat or 1) > 1 else ""
    decoded = f"decoded {format_count(summary.n_gen)}{repeat}"
    if not summary.depths:
        return f"{prompt}, {decoded}"
    return f"{decoded} at depths {in_words([format_count(each.n_depth) for each in summary.depths])}"


_SHOWN = ("n_ctx", "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn", "threads", "memory_limit_bytes")


def _loaded(summary: QuantSummary) -> Facts:
    """Return how the model was loaded; nothing for a server, which does not say."""
    setup, memory, per_token = summary.setup, summary.memory, summary.subject.kv_bytes_per_token
    if setup.cache_types is None:
        return ()
    type_k, type_v = setup.cache_types
    cache = [type_k if type_k == type_v else f"K {type_k}, V {type_v}"]
    if per_token is not None:
        cache.append(f"{format_bytes(per_token)} per token")
    if memory.flash_attn is not None:
        cache.append(f"flash attention {on_off(memory.flash_attn)}")
    n_batch, n_ubatch = memory.n_batch or setup.n_batch, memory.n_ubatch or setup.n_ubatch
    return [
        ("KV cache", ", ".join(cache)),
        ("", swa_text(memory.swa_cells, memory.n_ctx)),
        ("batches", f"n_batch {n_batch}, n_ubatch {n_ubatch}" if n_batch else ""),
        ("threads", format_count(setup.threads) if setup.threads else ""),
        ("memory limit", "" if setup.memory_limit_bytes is None else format_bytes(setup.memory_limit_bytes)),
        ("other options", shlex.join(config_options(setup, without=_SHOWN))),
    ]


def memory_table(memory: Memory) -> Table:
    """Return the buffers by device, what else the process held, and its peak."""

    def row(name: str, parts: Sequence[int]) -> list[str]:
        return [
            f"  {sanitize(name)}",
            *(format_bytes(part) if part else "" for part in parts),
            format_bytes(sum(parts)),
        ]

    parts = [
        [each.weight_bytes, each.kv_bytes, each.compute_bytes, each.output_bytes] for each in memory.buffers
    ]
    rows = [row(buffers.device, part) for buffers, part in zip(memory.buffers, parts, strict=True)]
    unread = format_bytes(memory.unread_bytes)
    if memory.unread_bytes:
        rows.append(["  never read again", f"-{unread}", "", "", "", f"-{unread}"])
    if len(parts) > 1:
        weights, *others = map(sum, zip(*parts, strict=True))
        rows.append(row("all", [weights - memory.unread_bytes, *others]))
    for name, n_bytes in (("other", memory.other_bytes), ("peak resident", memory.peak_bytes)):
        if n_bytes is not None:
            rows.append([f"  {name}", "", "", "", "", format_bytes(n_bytes)])
    columns = {"  device": "left"} | dict.fromkeys(("weights", "KV", "compute", "output", "total"), "right")
    return new_table("Memory", columns, rows)


def _prefills(summary: QuantSummary) -> Table:
    headers = ("  prompt\n  tokens", "time\nms", "speed\ntok/s", "timings")
    rows = []
    for each in summary.prefills:
        depth = f" @ d{each.n_depth}" if each.n_depth else ""  # llama-bench's spelling
        prompt = f"{format_count(each.n_prompt)}{depth}"
        rows.append((prompt, format_ms(each.prefill_ms), tok_s_text(each), format_count(each.repeat)))
    return new_table("Prefill", dict.fromkeys(headers, "right"), rows)


def _depths(summary: QuantSummary) -> Table:
    headers = ("  tokens in\n  the cache", "speed\ntok/s", "timings")
    rows = [
        (format_count(each.n_depth), tok_s_text(each), format_count(each.repeat)) for each in summary.depths
    ]
    return new_table("Speed by depth", dict.fromkeys(headers, "right"), rows)


def _latency(summary: QuantSummary, decode: DecodeTiming) -> Facts:
    return [("prefill", _prefill_text(decode)), *_fitted(summary, decode), *_speeds(decode)]


def _prefill_text(decode: DecodeTiming) -> str:
    if not decode.prefill_ms:
        return ""
    each = f" of each of {decode.n_seqs} users" if decode.n_seqs > 1 else ""
    tok_s = format_number(decode.n_seqs * decode.n_prompt * 1e3 / decode.prefill_ms)
    return f"{format_ms(decode.prefill_ms)} ms for {format_count(decode.n_prompt)} tokens{each}, {tok_s} tok/s"


def _fitted(summary: QuantSummary, decode: DecodeTiming) -> Facts:
    fit = decode.fit
    if fit is None:
        return [("W, B", "need several depths, and at least 3 timings")] if decode.depths else []
    b_w16_ms = summary.b_w16_ms
    return [
        ("W", f"{with_unit(w_text(fit), 'tokens/ms')}{_share(decode.w_ratio)}"),
        ("B", f"{with_unit(b_text(fit), 'ms')}{_share(decode.b_ratio)}"),
        ("B as w16", "" if b_w16_ms is None else f"{format_ms(b_w16_ms)} ms"),
        ("R²", f"{format_number(fit.r2)} over {format_count(fit.n_samples)} samples"),
    ]


def _speeds(decode: DecodeTiming) -> Facts:
    latency, requests = decode.latency, decode.requests
    if latency is None:
        return []
    percentiles = [("p50", latency.p50_ms), ("p95", latency.p95_ms), ("p99", latency.p99_ms)]
    per_token = ", ".join(f"{name} {format_ms(ms)} ms" for name, ms in percentiles if ms is not None)
    facts = [("token", per_token), ("speed", f"{tok_s_text(latency)} tok/s")]
    if decode.n_seqs > 1:
        together = format_number(decode.tok_s_together)
        facts.append(("users", f"{decode.n_seqs} at once, that speed each; together {together} tok/s"))
    if requests is not None:
        low, high = format_number(requests.tok_s_low), format_number(requests.tok_s_high)
        facts.append(
            ("", f"slowest {low}, fastest {high} tok/s; max TTFT {format_ms(requests.ttft_max_ms)} ms")
        )
    if latency.sample_p50_ms is not None:
        facts.append(("sampling", f"{format_ms(latency.sample_p50_ms)} ms per token, not included above"))
    return facts


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f", {format_percent(ratio)} of the bandwidth limit"


def _gpu(use: GpuUse) -> Facts:
    clocks = f"min {format_count(use.sm_clock_min_mhz)} MHz" if use.sm_clock_min_mhz else ""
    if use.sm_clock_median_mhz:
        clocks += f", median {format_count(round(use.sm_clock_median_mhz))} MHz"
    energy = use.energy_per_token_mj
    return [
        ("readings", format_count(use.n_readings)),
        ("max temperature", _measured(use.temperature_max_c, "°C")),
        ("SM clock", clocks),
        ("power", _measured(use.power_mean_w, "W on average")),
        ("energy", _measured(None if energy is None else energy / 1e3, "J per token")),
        ("throttle reason", _throttle_text(use)),
        ("peak memory", "" if use.worker_bytes is None else format_bytes(use.worker_bytes)),
        (
            "other programs",
            "" if use.other_processes is None else name_processes(use.other_processes) or "none",
        ),
    ]


def _measured(value: float | None, unit: str) -> str:
    return "" if value is None else f"{format_number(value)} {unit}"


def _throttle_text(use: GpuUse) -> str:
    if use.throttle is None:
        return ""
    return (
        ", ".join(f"{each.reason} in {format_count(each.n_readings)} readings" for each in use.throttle)
        or "none"
    )


_ANSWERS = {"w_tokens_per_ms": 2, "b_ms": 3, "tok_s": 1}
"""Columns of a list of runs, with their priorities."""


def rows_table(summaries: Sequence[QuantSummary], keys: Sequence[str], *, width: int | None = None) -> Table:
    marked = MARKED if any(each.unsteady for each in summaries) else ""
    return fitted_table(
        [_cells(key, column_texts(key, summaries)) for key in keys],
        labels=row_labels([summary.subject for summary in summaries]),
        dim=[summary.outcome is not Outcome.COMPLETED for summary in summaries],
        width=width,
        caption="\n".join(filter(None, (marked, twin_caption(each.subject for each in summaries)))),
    )


def runs_table(runs: Sequence[ListedRun], *, width: int | None = None) -> Table:
    """Return stored runs with their results so far; an unsteady run is only marked."""
    runs = named_runs(runs)
    labels = [str(run.run_id) for run in runs]
    return fitted_table(
        [
            right("run", labels),
            left("started", (run.stored.started_at[:16].replace("T", " ") for run in runs), "UTC", 5),
            left("kind", (run.stored.kind for run in runs)),
            names("model", (run.model for run in runs)),
            names("quant", (run.subject.quant for run in runs)),
            left("source", (run.subject.source for run in runs), priority=4),
            *(
                replace(_cells(key, [run.text(key) for run in runs]), priority=rank)
                for key, rank in _ANSWERS.items()
            ),
            left("outcome", map(_outcome, runs)),
            notes(map(_note, runs)),
        ],
        labels=[f"run {label}" for label in labels],
        width=width,
        caption=_runs_caption(runs),
    )


def _runs_caption(runs: Sequence[ListedRun]) -> str:
    marked = MARKED_RUN if any(map(_is_unsteady, runs)) else ""
    return "\n".join(filter(None, (marked, twin_caption(run.subject for run in runs))))


def _is_unsteady(run: ListedRun) -> bool:
    return run.run is not None and bool(run.run.unsteady)


def _outcome(run: ListedRun) -> str:
    """Return the run's answer or state, marked if it is unsteady and has no speed to mark."""
    is_marked = _is_unsteady(run) and not run.text("tok_s").startswith(UNSTEADY)
    return f"{UNSTEADY} {run.answer}" if is_marked else run.answer


def _note(run: ListedRun) -> str:
    mark, summary = imported_text(run.stored.environment), run.summary
    if summary is None or run.problem:
        problem = run.problem
    elif run.is_completed:
        has_answer = summary.max_n_ctx is not None or any(run.text(key) != UNKNOWN for key in _ANSWERS)
        problem = "" if has_answer else run.note
    else:
        problem = "" if run.stored.state == RUNNING else sanitize(summary.run.reason)
    return problem if mark in problem else "; ".join(filter(None, (mark, problem)))


def _cells(key: str, texts: Iterable[str]) -> Cells:
    column, is_name = column_of(key), key in ("model", "quant")
    sides = column.unit, column.right_aligned, column.priority
    return Cells(column.header, tuple(texts), *sides, is_note=key == "note", is_name=is_name)


def column_texts(key: str, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
    if key == "model":
        return model_names([summary.subject for summary in summaries])
    return tuple(map(column_of(key).text, summaries))


def rows_as_csv(summaries: Sequence[QuantSummary]) -> str:
    """Return every column as CSV: values are not rounded, unknown ones empty."""
    columns = all_columns()

    def cell(value: Value) -> Value:
        return without_formula(value) if isinstance(value, str) else value

    return csv_text(
        list(columns), ([cell(each.value(summary)) for each in columns.values()] for summary in summaries)
    )


def rows_as_markdown(summaries: Sequence[QuantSummary], keys: Sequence[str]) -> str:
    columns = [all_columns()[key] for key in keys]
    lines = [
        [markdown_escaped(column.title) for column in columns],
        ["---:" if column.right_aligned else "---" for column in columns],
        *(
            map(markdown_escaped, cells)
            for cells in zip(*(column_texts(key, summaries) for key in keys), strict=True)
        ),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


class QuantPresenter(Presenter):
    """Presents runs shown in a table of quants: a decode, or prompts of several lengths."""

    def has_details(self, run: Run) -> bool:
        return run.is_complete or bool(self.answer(run))

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        sizes = sorted({n_seqs for run in runs for n_seqs in batch_sizes(run)}) or [1]
        return tuple(latency_figure(runs, n_seqs) for n_seqs in sizes)

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        return (*decode_bars(summaries), prompt_speed(summaries, names), *memory_stacks(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return decode_metrics(summaries)

    def caveats(self, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
        is_other = vary(decoded_lengths, summaries)
        return ("different lengths: p50, p99 and tok/s are over different positions",) if is_other else ()

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        summaries = [QuantSummary.of([run]) for run in runs]
        return rows_table(summaries, bench_columns(summaries), width=width)

    def against_document(self, run: Run) -> dict[str, object] | None:
        summary = QuantSummary.of([run])
        return {"against": nearest_to(summary)} if summary.decode is not None or summary.prefills else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return against_tables([QuantSummary.of([run]) for run in runs], width=width)

    def details(
        self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()
    ) -> RenderableType:
        return row_details(QuantSummary.of([run]), folded=folded, readings=readings)
