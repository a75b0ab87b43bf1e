"""llama-bench's rows as runs: tg at any depths is a decode, pp a prefill.

Rows that differ only in the test form one run, which keeps the original rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath, PureWindowsPath

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import FlashAttn, LlamaConfig, SplitMode
from ggbench.errors import BadFile
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.formats.imported_run import (
    SOURCE,
    ImportedRun,
    SourceFile,
    content_sha256,
    environment_of,
    observed,
)
from ggbench.formats.llama_bench import TOOL, BenchRow
from ggbench.gguf_file.quants import name_without_quant, quant_from_words, quant_label
from ggbench.machine.records import Environment, Gpu, Imported
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.recording import PromptTiming
from ggbench.runs.run import Result, Run, RunHead, Settings
from ggbench.runs.store.runs import utc_text
from ggbench.show.anonymous import anonymous
from ggbench.stats.decode_timing import DecodeWindow

_FLASH_ATTN: dict[object, FlashAttn] = {-1: "auto", 0: "off", 1: "on"}
_SPLIT_MODES: dict[str, SplitMode] = {"none": "none", "layer": "layer", "row": "row", "tensor": "tensor"}
_FILE_TYPE = re.compile(r"\S+ \S+ (?P<words>(?:all )?[A-Za-z0-9_]+(?: - (?:Small|Medium|Large))?)")


class _Measured(Record):
    kind: str
    settings: Settings
    result: Result
    records: Sequence[object]


_Rows = Sequence[BenchRow]
_Measure = Callable[[_Rows], _Measured]


def runs_of(rows: Iterable[tuple[str, Mapping[str, object]]], file: SourceFile) -> list[ImportedRun]:
    """Return the runs formed by the rows of a file; duplicate rows count once.

    Raises BadFile for an invalid row, naming line and field, and for a file without rows.
    """
    groups: dict[tuple[_Measure, tuple[object, ...]], list[BenchRow]] = {}
    for where, raw in rows:
        row = BenchRow.of(raw, where)
        measure, same = _measure(row, where)
        group = groups.setdefault((measure, (row.setting, same)), [])
        if row not in group:
            group.append(row)
    if not groups:
        raise BadFile(f"{file.name} has no row of {TOOL}", "pass a file with results")
    return [_run(group, measure, file) for (measure, _), group in groups.items()]


def _measure(row: BenchRow, where: str) -> tuple[_Measure, int]:
    """Return the experiment of a row's test, and the other key of rows in one run."""
    if not row.n_prompt:
        return _decode, row.n_gen
    if not row.n_gen:
        return _prefill, 0
    what = f"{where}: {row.test} times a prompt and its answer together, for which ggbench has no kind of run"
    raise BadFile(what, "leave this row out")


def _decode(rows: _Rows) -> _Measured:
    """Return windows of one length, with W and B if they are at several depths."""
    from ggbench.stats.linefit import depth_speeds, fit_windows, window_speed

    windows = [
        DecodeWindow(row.n_depth, row.n_gen, float(elapsed_ns), repeat=repeat)
        for row in sorted(rows, key=lambda row: row.n_depth)
        for elapsed_ns, repeat in _timings(row)
    ]
    depths = sorted({window.n_depth for window in windows})
    n_gen, repeat = rows[0].n_gen, max(len(row.samples_ns) for row in rows) or 1
    result = DecodeResult(
        n_prompt=depths[0],
        n_gen=sum(window.n_gen * (window.repeat or 1) for window in windows),
        fit=fit_windows(windows, in_turns=False),
        latency=window_speed(windows),
        depths=depth_speeds(windows),
    )
    settings = DecodeSettings(n_gen=n_gen, n_prompt=depths[0], repeat=repeat, n_warmup=0, depths=tuple(depths))
    return _Measured("decode", settings, result, windows)


def _prefill(rows: _Rows) -> _Measured:
    from ggbench.stats.speed import prompt_speed

    speeds, timings = [], []
    for row in sorted(rows, key=lambda row: (row.n_depth, row.n_prompt)):
        elapsed = [round(elapsed_ns) for elapsed_ns, _ in _timings(row)]
        speeds.append(replace(prompt_speed(row.n_prompt, elapsed), n_depth=row.n_depth))
        timings += [PromptTiming(row.n_prompt, each, n_depth=row.n_depth) for each in elapsed]
    lengths = tuple(dict.fromkeys(row.n_prompt for row in rows))
    repeat = max(speed.repeat for speed in speeds)
    return _Measured("prefill", PrefillSettings(lengths, repeat), PrefillResult(tuple(speeds)), timings)


def _timings(row: BenchRow) -> list[tuple[float, int | None]]:
    """Return each repetition, or their mean with None for the number if unknown."""
    return [(float(each), 1) for each in row.samples_ns] or [(row.elapsed_ns, None)]


def _run(rows: _Rows, measure: _Measure, file: SourceFile) -> ImportedRun:
    first, measured = rows[0], measure(rows)
    subject, setup = _subject(first), _setup(first)
    times = list(filter(None, (utc_text(row.text("test_time")) for row in rows)))
    run = Run(
        head=RunHead(
            kind=measured.kind,
            subject=subject,
            setup=setup,
            settings=measured.settings,
            environment=_environment(first, _mark(rows, measured, subject, file)),
            started_at=min(times, default=""),
        ),
        outcome=Outcome.COMPLETED,
        memory=Memory(
            n_batch=first.integer("n_batch") or None,
            n_ubatch=first.integer("n_ubatch") or None,
            flash_attn={"off": False, "on": True}.get(setup.flash_attn),
        ),
        result=measured.result,
        finished_at=max(times, default=None),
    )
    return ImportedRun(run, observed([*measured.records, *(row.record for row in rows)]))


def _mark(rows: _Rows, measured: _Measured, subject: Subject, file: SourceFile) -> Imported:
    contents = sorted((anonymous(row.record.fields) for row in rows), key=repr)
    return Imported(
        tool=TOOL,
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=content_sha256(TOOL, subject.model, subject.quant, measured.kind, contents),
    )


def _subject(row: BenchRow) -> Subject:
    file_name = PureWindowsPath(row.text("model_filename")).name or PurePath(row.text("model_filename")).name
    name, quant = row.text("model_type"), None  # `llama 7B Q4_K - Medium`, llama.cpp's name of the file type
    architecture = name.split(" ")[0] or None
    if words := _FILE_TYPE.match(name):
        name, quant = name[: words.start("words")].rstrip(), quant_from_words(words["words"])
    n_params, n_bytes = row.integer("model_n_params") or None, row.integer("model_size") or None
    return Subject(
        model=name_without_quant(file_name).strip() or name or "unknown",
        quant=quant_label(file_name) or quant or "unknown",
        source=SOURCE,
        n_params=n_params,
        bpw=n_bytes * 8 / n_params if n_bytes and n_params else None,
        weight_bytes=n_bytes,
        architecture=architecture,
    )


def _setup(row: BenchRow) -> LlamaConfig:
    known, load_mode = LlamaConfig(), row.text("load_mode")
    split = tuple(map(float, re.findall(r"\d+(?:\.\d+)?", row.text("tensor_split"))))
    split_mode = _SPLIT_MODES.get(row.text("split_mode"), known.split_mode)
    if load_mode in ("", "auto"):
        load_mode = "" if row.fields.get("use_mmap") is False else "mmap"
    return LlamaConfig(
        n_batch=row.integer("n_batch") or known.n_batch,
        n_ubatch=row.integer("n_ubatch") or known.n_ubatch,
        type_k=row.text("type_k") or known.type_k,
        type_v=row.text("type_v") or known.type_v,
        flash_attn=_FLASH_ATTN.get(row.fields.get("flash_attn"), "auto"),
        n_gpu_layers=row.integer("n_gpu_layers") if "n_gpu_layers" in row.fields else known.n_gpu_layers,
        main_gpu=row.integer("main_gpu") if split_mode == "none" else None,
        tensor_split=split if any(split) else (),
        split_mode=split_mode,
        n_cpu_moe=max(0, row.integer("n_cpu_moe")),
        override_tensor=tuple(re.findall(r"[^;]*=[^;]*", row.text("tensor_buft_overrides"))),
        threads=row.integer("n_threads") or None,
        mmap="mmap" in load_mode,
        mlock="mlock" in load_mode,
        kv_offload=not row.fields.get("no_kv_offload"),
    )


def _environment(row: BenchRow, imported: Imported) -> Environment:
    commit, number = row.text("build_commit"), row.integer("build_number")
    build = f"build {number} ({commit})" if number and commit else commit
    gpus = [name.strip() for name in row.text("gpu_info").split(",") if name.strip()]
    return replace(
        environment_of(imported, cpu=row.text("cpu_info"), commit=commit, llama_cpp=build),
        gpus=tuple(Gpu(index, name, *(None,) * 7) for index, name in enumerate(gpus)),
    )
