"""llama-perplexity's printed results as quality runs.

It prints results to stdout and their conditions to stderr, so a file needs both. Source: llama.cpp's
tools/perplexity/perplexity.cpp.
"""

from __future__ import annotations

import math
import re

from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile
from ggbench.experiments.quality.record import Divergence, QualityResult, QualitySettings, ScoredBase, TextSource
from ggbench.formats.imported_run import SOURCE, ImportedRun, Named, SourceFile, content_sha256, environment_of
from ggbench.gguf_file.quants import name_without_quant, quant_from_file_name
from ggbench.machine.records import Imported
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize

TOOL = "llama-perplexity"

_NUMBER = r"\s*(-?[0-9.]{1,30}|-?nan|-?inf)"
_FINAL = rf"Final estimate: PPL ={_NUMBER} \+/-{_NUMBER}"
_MEASURED = {
    "ppl": rf"Mean PPL\(Q\)\s*:{_NUMBER} ±{_NUMBER}",
    "base_ppl": rf"Mean PPL\(base\)\s*:{_NUMBER} ±{_NUMBER}",
    "ln_ppl_ratio": rf"Mean ln\(PPL\(Q\)/PPL\(base\)\)\s*:{_NUMBER} ±{_NUMBER}",
    "kld": rf"Mean    KLD:{_NUMBER} ±{_NUMBER}",
    "p_diff": rf"Mean    Δp:{_NUMBER} ±{_NUMBER} %",
    "rms_p_diff": rf"RMS Δp    :{_NUMBER} ±{_NUMBER} %",
    "same_top": rf"Same top p:{_NUMBER} ±{_NUMBER} %",
}
_OF_PERCENT = {"p_diff", "rms_p_diff", "same_top"}
_PERCENTILE = re.compile(rf"^\s*(Maximum|Median|Minimum|[0-9]{{1,3}}(?:\.[0-9]+)?%)\s+KLD:{_NUMBER}\s*$", re.MULTILINE)
_NAMED_PERCENTS = {"Maximum": 100.0, "Median": 50.0, "Minimum": 0.0}
_COMPUTED = re.compile(r"(?:calculating perplexity|computing) over (\d{1,9}) chunks, n_ctx=(\d{1,9}),"
                       r" batch_size=(\d{1,9}), n_seq=(\d{1,9})")  # fmt: skip
_LOADED = re.compile(r"(?:loaded meta data .* from|loading model) '?([^'\n]+\.gguf)", re.IGNORECASE)
_SCORES = re.compile(r"\[\d{1,7}\]\d[0-9.]*,")
_BOTH = f"save both streams: {TOOL} ... > FILE 2>&1"
_HINT = f"pass the unmodified output of {TOOL}"


def is_perplexity(text: str) -> bool:
    return bool(re.search(_FINAL, text) or re.search(_MEASURED["kld"], text) or _SCORES.search(text))


def read_runs(file: SourceFile, named: Named) -> list[ImportedRun]:
    """Return the single run in the output. Raises BadFile and UsageError."""
    text = file.text
    figures = {name: _estimate(text, name, pattern, file.name) for name, pattern in _MEASURED.items()}
    ppl = figures["ppl"] or _estimate(text, "final", _FINAL, file.name)
    if ppl is None:
        raise BadFile(f"{file.name} has no final estimate: {TOOL} was stopped, or prints it to stderr", _BOTH)
    computed = list(_COMPUTED.finditer(text))
    if not computed:
        raise BadFile(f"{file.name} does not say over how many chunks of how many tokens it was computed", _BOTH)
    if len(computed) > 1:
        raise BadFile(f"{file.name} contains {len(computed)} runs of {TOOL}", "put each into a separate file")
    n_chunks, n_ctx, n_batch, n_seqs = map(int, computed[0].groups())
    if n_ctx < 4 or n_chunks < 1:
        raise BadFile(f"{file.name}: {n_chunks} chunks of {n_ctx} tokens cannot be scored", _HINT)
    subject = _subject(text, file, named)
    divergence = _divergence(text, figures, file.name)
    known = [each and (each.mean, each.error) for each in figures.values()]
    imported = Imported(
        tool=TOOL,
        file=file.name,
        file_sha256=file.sha256,
        content_sha256=content_sha256(TOOL, subject.model, subject.quant, n_ctx, n_chunks, known, repr(ppl)),
        lacks=(
            "the scored text is unknown, so the run is not comparable with others",
            *(("the base of comparison is unknown",) if divergence else ()),
            "the machine, the memory, and how the model was loaded are unknown",
        ),
    )
    settings = QualitySettings(TextSource("unknown text", "", None), n_ctx, n_chunks, n_seqs=n_seqs)
    result = QualityResult(
        text=settings.text,
        n_ctx=n_ctx,
        n_chunks=n_chunks,
        n_scored=n_chunks * settings.n_scored_per_chunk,
        ppl=ppl,
        base=None if divergence is None else ScoredBase(Subject(model="unknown", quant="base", source=SOURCE)),
        divergence=divergence,
    )
    head = RunHead(
        kind="quality",
        subject=subject,
        setup=LlamaConfig(n_batch=n_batch, n_seq_max=max(1, n_seqs)),
        settings=settings,
        environment=environment_of(imported),
    )
    return [ImportedRun(Run(head=head, outcome=Outcome.COMPLETED, memory=Memory(n_batch=n_batch), result=result))]


def _subject(text: str, file: SourceFile, named: Named) -> Subject:
    loaded = _LOADED.search(text)
    file_name = sanitize(loaded[1].replace("\\", "/").rpartition("/")[2]) if loaded else ""
    model = name_without_quant(file_name) if file_name else ""
    quant = quant_from_file_name(file_name) if file_name else None
    model, quant = Named(model or named.model, quant or named.quant).require(file, TOOL)
    return Subject(model=model, quant=quant, source=SOURCE)


def _estimate(text: str, what: str, pattern: str, name: str) -> Estimate | None:
    found = re.search(pattern, text)
    if found is None:
        return None
    share = 0.01 if what in _OF_PERCENT else 1.0
    return Estimate(_number(found[1], name) * share, _number(found[2], name) * share)


def _divergence(text: str, figures: dict[str, Estimate | None], name: str) -> Divergence | None:
    if figures["kld"] is None:
        return None
    known = {what: estimate for what, estimate in figures.items() if estimate is not None and what != "ppl"}
    missing = [what for what in figures if what != "ppl" and what not in known]
    if missing:
        raise BadFile(f"{name}: the statistics end before {missing[0]}", f"{TOOL} was stopped; let it finish")
    percentiles = [
        (_NAMED_PERCENTS[share] if share in _NAMED_PERCENTS else float(share.rstrip("%")), _number(value, name))
        for share, value in _PERCENTILE.findall(text)
    ]
    return Divergence(kld_percentiles=tuple(sorted(percentiles, reverse=True)), **known)


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadFile(f"{name}: {text!r} is not a number", _HINT)
    return number
