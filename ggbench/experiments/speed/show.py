"""Speed by input length and batch size: its answer, documents, curves, and metrics of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.experiments.speed.record import Case, SpeedCase, SpeedResult, result_of
from ggbench.models.published import load_published
from ggbench.models.published.selection import nearest_published
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.against import Beside, device_of, own_speed
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.figure import Figure, member, reader
from ggbench.show.machine import serving_facts
from ggbench.show.metric import Metric, memory_metric, speed_metric
from ggbench.show.names import quant_name, row_labels, run_name, twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import run_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.words import say
from ggbench.units import format_bytes, format_number

_NEAREST = 3
_DEFINITIONS = (
    "tok/s as in Qwen2.5's tables: generated tokens / (prefill + decode); as in Qwen3's: (input + generated)"
    " tokens / (prefill + decode); tokens of all sequences of a batch."
)


class _Row(Record):
    """A case of a run, with the name of the run in its table."""

    quant: str
    found: SpeedCase


_CASES = (
    member("quant", "quant"),
    member("n_input", "input", path="found.case.n_input", unit="tokens"),
    member("n_batch", "batch", path="found.case.n_seqs"),
    member(
        "tok_s_qwen2_5",
        "Qwen2.5",
        path="found.tok_s_qwen2_5",
        unit="tok/s",
        better="more",
        meaning="Generated tokens of all sequences / time of prefill plus decode, as in Qwen2.5's tables.",
    ),
    member(
        "tok_s_qwen3",
        "Qwen3",
        path="found.tok_s_qwen3",
        unit="tok/s",
        better="more",
        meaning="Input plus generated tokens / the same time, as in Qwen3's tables: up to 8 times higher.",
    ),
    member("decode_tok_s", "decode", path="found.decode_tok_s", unit="tok/s", better="more", priority=1),
    member("prefill_tok_s", "prefill", path="found.prefill_tok_s", unit="tok/s", better="more", priority=2),
    member(
        "memory_bytes", "memory", path="found.ended.memory_bytes", form=format_bytes, better="less", priority=3
    ),
)


def _speed(run: Run) -> float | None:
    found = _largest(run)
    return None if found is None else found.tok_s_qwen2_5


_HEADLINE = Figure(
    "tok_s_qwen2_5",
    "Qwen2.5",
    _speed,
    unit="tok/s",
    meaning="Speed of the case with most tokens, as Qwen2.5 counts.",
)


class SpeedPresenter(Presenter):
    kind = "speed"
    documents = RunDocuments(
        "speed", (_HEADLINE,), "Speed by input length and batch size.", several_as="speed.all"
    )
    has_line = False
    has_samples = False
    no_answer = "no case was measured"
    figures = (_HEADLINE,)
    headline = _HEADLINE

    def answer(self, run: Run) -> str:
        """Return the speed of the same case."""
        found = _largest(run)
        if found is None:
            return ""
        return say("speed.case", speed=found.tok_s_qwen2_5, case=found.case.name)

    def has_details(self, run: Run) -> bool:
        return bool(result_of(run).cases)

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        """Return the speeds of the cases that several runs have."""
        cases = [each.case for run in runs for each in _completed(run.result_as(SpeedResult))]
        shared = sorted({case for case in cases if cases.count(case) > 1})
        return (*map(_case_metric, shared), memory_metric(runs))

    def beside(self, run: Run) -> Sequence[Beside] | None:
        return [_beside(run, each) for each in result_of(run).cases] or None

    def details(self, run: Run) -> Answer:
        found = self.table([run])
        text = f"{run_name(run)}: {self.ending(run)}."
        return run_answer(run, replace(found, text=text))

    def table(self, runs: Sequence[Run]) -> Answer:
        subjects = [run.subject for run in runs]
        labelled = list(zip(runs, row_labels(subjects), strict=True))
        rows = [_Row(label, each) for run, label in labelled for each in result_of(run).cases]
        notes = [f"{row.quant}, {row.found.case.name}: {row.found.why}" for row in rows if row.found.why]
        notes += twin_notes(subjects)
        served = [Facts(serving_facts(run), "Server") for run in runs]
        figures = _CASES[1:] if len(runs) == 1 else _CASES
        return Answer("", "", [Table(figures, rows)], notes, [_DEFINITIONS, *served])


def _completed(result: object) -> list[SpeedCase]:
    cases = result.cases if isinstance(result, SpeedResult) else ()
    return [each for each in cases if each.tok_s_qwen2_5 is not None]


def _largest(run: Run) -> SpeedCase | None:
    """Return the completed case with most tokens; None if none completed."""
    return max(_completed(run.result), key=lambda each: each.case.n_tokens, default=None)


def _case_metric(case: Case) -> Metric:
    """Return tokens/s of one case, without an interval as its prefill is timed once."""

    def found(run: Run) -> SpeedCase | None:
        cases = _completed(run.result_as(SpeedResult))
        return next((each for each in cases if each.case == case), None)

    return speed_metric(f"tok_s_i{case.n_input}_b{case.n_seqs}", case.name, reader("tok_s_qwen2_5", found))


def _beside(run: Run, found: SpeedCase) -> Beside:
    """Return a case beside the nearest published speeds of the model, of batches for several sequences."""
    case, memory = found.case, found.ended.memory_bytes
    conditions = own_speed(run, case.n_input, case.n_gen, case.n_seqs)
    stated = "tok_s" if case.n_seqs == 1 else "throughput_tok_s"
    rows = [row for row in load_published() if stated in row.figures]
    own = {
        "tok_s": format_number(found.tok_s_qwen2_5),
        "throughput_tok_s": format_number(found.decode_tok_s),
        "memory_gb": UNKNOWN if memory is None else f"{memory / 1e9:.2f}",
    }
    near = () if conditions is None else nearest_published(rows, conditions, _NEAREST)
    note = f"llama.cpp, {device_of(run) or 'unknown device'}"
    return Beside(
        f"{quant_name(run.subject)}, {case.name}, against published rows", run.subject.quant, own, near, note
    )


PRESENTER = SpeedPresenter()
