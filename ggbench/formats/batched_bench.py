"""llama-batched-bench's table and JSON lines as speed runs: PP is the input, B the batch, TG the generated tokens.

Source: llama.cpp's tools/batched-bench/batched-bench.cpp. Its figures are those of `ggbench speed`, which counts as it
does; the model, its file and the machine are not in its output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ggbench.engines.config import LlamaSetup
from ggbench.engines.memory import Memory
from ggbench.errors import BadFile, UsageError
from ggbench.experiments.speed.record import BatchLine, Case, CaseEnded, SpeedResult, SpeedSettings
from ggbench.formats.imported_run import SOURCE, ImportedRun, Named, content_sha256, environment_of, observed
from ggbench.formats.llama_bench_json import read_objects
from ggbench.formats.source_file import SourceFile
from ggbench.runs.imported import Imported
from ggbench.runs.observation import DecodeWindow, PromptTiming
from ggbench.runs.outcome import Outcome
from ggbench.runs.run import Run, RunHead
from ggbench.runs.subject import Subject
from ggbench.text import shorten

TOOL = "llama-batched-bench"

_COLUMNS = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")
_IN_JSON = {"PP": "pp", "TG": "tg", "B": "pl", "T_PP s": "t_pp", "T_TG s": "t_tg"}
_SETTINGS = (
    "n_batch", "n_ubatch", "n_gpu_layers", "n_threads", "n_threads_batch", "flash_attn", "is_pp_shared",
    "is_tg_separate",
)  # fmt: skip
_HEAD = re.compile(rf"({'|'.join(_SETTINGS)}) = (-?\d{{1,9}})")
_HINT = f"give the file as {TOOL} wrote it"
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class _Row:
    """One case with its times, and how the tool was set up."""

    case: Case
    prefill_ns: int
    decode_ns: int
    settings: tuple[tuple[str, int], ...]


def is_batched_bench(text: str) -> bool:
    """Whether it has the tool's table, or begins with one of its JSON lines."""
    if text.lstrip().startswith("{"):
        return all(f'"{name}"' in text.lstrip().partition("\n")[0] for name in ("pp", "tg", "pl", "t_tg"))
    return any(_cells(line) == list(_COLUMNS) for line in text.splitlines())


def read_runs(file: SourceFile, named: Named) -> list[ImportedRun]:
    """Return a run for each number of generated tokens and each setup. Raises BadFile and UsageError."""
    text = file.text
    found = _objects(text, file.name) if text.lstrip().startswith("{") else _table(text, file.name)
    groups: dict[tuple[object, ...], dict[Case, _Row]] = {}
    for where, raw in found:
        row = _row(raw, where)
        if dict(row.settings).get("is_pp_shared") or dict(row.settings).get("is_tg_separate"):
            raise BadFile(
                f"{where}: the sequences share a prompt or are decoded one by one, which ggbench has no run for",
                f"have {TOOL} measure without -pps and -tgs",
            )
        groups.setdefault((row.settings, row.case.n_gen), {})[row.case] = row
    if not groups:
        raise BadFile(f"{file.name} has no row of {TOOL}", "give a file with results")
    model, quant = named.require(file, TOOL)
    return [_run(list(rows.values()), file, model, quant) for rows in groups.values()]


def _objects(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    for where, entry in read_objects(text, name):
        settings = {name: entry[name] for name in _SETTINGS if name in entry}
        yield where, {column: entry.get(key) for column, key in _IN_JSON.items()} | settings


def _table(text: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    settings: dict[str, object] = {}
    in_table = False
    for number, line in enumerate(text.splitlines(), start=1):
        cells, where = _cells(line), f"{name}, line {number}"
        if "n_kv_max" in line:
            settings = dict(_HEAD.findall(line))
        elif cells == list(_COLUMNS):
            in_table = True
        elif in_table and cells and not set("".join(cells)) <= {"-"}:
            if len(cells) != len(_COLUMNS):
                raise BadFile(f"{where}: it has {len(cells)} cells under {len(_COLUMNS)} headers", _HINT)
            yield where, dict(zip(_COLUMNS, cells, strict=True)) | settings


def _cells(line: str) -> list[str]:
    line = line.strip()
    return [cell.strip(" ") for cell in line[1:-1].split("|")] if line.startswith("|") and line.endswith("|") else []


def _row(raw: Mapping[str, object], where: str) -> _Row:
    counts = {name: _number(raw, name, where) for name in ("B", "PP", "TG")}
    if any(count != int(count) or not 1 <= count < _MOST for count in counts.values()):
        raise BadFile(f"{where}: PP, TG and B have to be whole numbers from 1 on", _HINT)
    seconds = {name: _number(raw, name, where) for name in ("T_PP s", "T_TG s")}
    for name, value in seconds.items():
        if value <= 0:
            raise BadFile(f"{where}: {name} is {value:g}, so nothing was timed", _HINT)
    case = Case(int(counts["B"]), int(counts["PP"]), int(counts["TG"]))
    known = tuple((name, int(_number(raw, name, where))) for name in sorted(set(raw) - set(_COLUMNS)))
    return _Row(case, round(seconds["T_PP s"] * 1e9), round(seconds["T_TG s"] * 1e9), known)


def _number(raw: Mapping[str, object], name: str, where: str) -> float:
    value = raw.get(name)
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadFile(f"{where}: {name} is {shorten(repr(value), 40)}, which is not a number", _HINT)
    return number


def _run(rows: Sequence[_Row], file: SourceFile, model: str, quant: str) -> ImportedRun:
    from ggbench.experiments.speed.cases import timed_cases
    from ggbench.formats.window_fit import fit_windows

    rows = sorted(rows, key=lambda row: row.case)
    settings, known = dict(rows[0].settings), LlamaSetup()
    ended = [CaseEnded(row.case, prefill_ns=row.prefill_ns) for row in rows]
    windows = [
        DecodeWindow(row.case.n_input, row.case.n_gen, float(row.decode_ns), n_seqs=row.case.n_seqs) for row in rows
    ]
    prompts = [PromptTiming(row.case.n_input, row.prefill_ns, row.case.n_seqs) for row in rows]
    batches = tuple(dict.fromkeys(row.case.n_seqs for row in rows))
    lines = ((n_seqs, fit_windows([each for each in windows if each.n_seqs == n_seqs])) for n_seqs in batches)
    imported = Imported(
        tool=TOOL,
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=content_sha256(
            TOOL, model, quant, settings, [(*_case(row.case), row.prefill_ns, row.decode_ns) for row in rows]
        ),
        lacks=(
            "the machine and the file that was measured are unknown: the model's name was given at import",
            "single steps were not timed, so percentiles are unknown, nor was the sampling of the first token",
            "the memory that it took is unknown",
        ),
    )
    setup = LlamaSetup(
        n_batch=settings.get("n_batch", known.n_batch),
        n_ubatch=settings.get("n_ubatch", known.n_ubatch),
        n_gpu_layers=settings.get("n_gpu_layers", known.n_gpu_layers),
        threads=settings.get("n_threads"),
        threads_batch=settings.get("n_threads_batch"),
        n_seq_max=max(batches),
    )
    try:
        asked = SpeedSettings(
            tuple(dict.fromkeys(row.case.n_input for row in rows)), rows[0].case.n_gen, batches, within_s=None
        )
    except UsageError as error:
        raise BadFile(f"{file.name}: {error.message}", _HINT) from None
    head = RunHead(
        kind="speed",
        subject=Subject(model=model, quant=quant, source=SOURCE),
        setup=setup,
        settings=asked,
        environment=environment_of(imported),
    )
    result = SpeedResult(
        timed_cases(ended, {row.case: row.decode_ns for row in rows}),
        tuple(BatchLine(n_seqs, fit, None) for n_seqs, fit in lines if fit is not None),
    )
    memory = Memory(n_batch=settings.get("n_batch"), n_ubatch=settings.get("n_ubatch"))
    run = Run(head=head, outcome=Outcome.COMPLETED, memory=memory, result=result)
    return ImportedRun(run, observed([*prompts, *windows, *ended]))


def _case(case: Case) -> tuple[int, int, int]:
    return case.n_seqs, case.n_input, case.n_gen
