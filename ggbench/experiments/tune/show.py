"""Show a search for settings that beat the defaults."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from rich.console import RenderableType

from ggbench.engines.llama.flags import server_flags
from ggbench.experiments.tune.record import TuneCandidate, TuneResult, TuneSettings, ratio_text, result_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Part
from ggbench.show.document import Shape, field, many, of
from ggbench.show.machine import run_answer
from ggbench.show.names import quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import MEASURED_FILE, ORIGIN, ShapedDocuments, expected, run_documents
from ggbench.show.tables import as_part, fitted_table, names, notes, right
from ggbench.text import sanitize
from ggbench.units import format_number

_CAPTION = "The first round, where the best of several is partly lucky, chooses what the second measures again."


def tuned_command(run: Run) -> str | None:
    """Return the llama-server command with the settings found; None without a gain."""
    found = result_of(run)
    if not found.has_gain or found.finalist is None:
        return None
    setup = replace(found.candidates[found.finalist].setup, n_ctx=run.head.setup.n_ctx)
    flags = server_flags(setup, on_gpu=bool(run.memory.weights_on_gpu))
    return sanitize(shlex.join(["llama-server", "-m", run.subject.file or run.subject.model, *flags]))


def _candidates(found: TuneResult) -> list[dict[str, object]]:
    return [_CANDIDATE.value(each, options=found.options(index)) for index, each in enumerate(found.candidates)]


_CANDIDATE = Shape(
    "Candidate", "Settings to try.", field("options", str), of(TuneCandidate, "reason? speed times_ms")
)
_TUNE = Shape(
    "Tune",
    "A search for the settings that beat the defaults.",
    MEASURED_FILE,
    of(TuneSettings, "for=objective depths within_s kv_types n_prompt timed", lambda run: run.head.settings),
    of(TuneResult, "best=changes has_gain finalist", result_of),
    field("candidates", many(_CANDIDATE), get=lambda run: _candidates(result_of(run))),
    expected("ratio", "Speed of the finalist / the defaults'.", lambda run: result_of(run).ratio, "ci95"),
    field(
        "llama_server", str | None, "The command with the settings found; null without a gain.", tuned_command
    ),
    ORIGIN,
)


class TunePresenter(Presenter):
    kind: ClassVar[str] = "tune"
    documents: ClassVar[ShapedDocuments] = run_documents("tune", _TUNE)
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False

    def answer(self, run: Run) -> str:
        found = result_of(run)
        return found.answer if run.is_complete or found.ratio is not None else ""

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        found, command, settings = result_of(run), tuned_command(run), run.head.settings
        heading = ": ".join(filter(None, (quant_name(run.subject), self.answer(run))))
        parts: list[Part] = []
        if isinstance(settings, TuneSettings) and found.candidates:
            parts.append(as_part(_candidates_table(found, settings.timed)))
        return run_answer(run, Answer(heading, command or "", parts), readings)

    def table(self, runs: Sequence[Run]) -> Answer:
        labels = row_labels([run.subject for run in runs])
        said = notes(self.answer(run) or run.reason for run in runs)
        return Answer("", "", [as_part(fitted_table([names("quant", labels), said], labels=labels))])


def _candidates_table(found: TuneResult, timed: Sequence[str]) -> RenderableType:
    rows, times = found.candidates, [dict(zip(timed, each.times_ms, strict=False)) for each in found.candidates]
    second = [ratio_text(found.ratio) if index == found.finalist else "" for index in range(len(rows))]
    cells = [
        names("options", [found.options(index) for index in range(len(rows))]),
        *(right(name, [format_number(each.get(name)) for each in times], "ms", 2) for name in timed),
        right("first round", [format_number(each.speed) for each in rows], "times", stays=True),
        right("second round", second, "times", stays=True),
        notes(each.reason for each in rows),
    ]
    return fitted_table(cells, dim=[each.speed is None for each in rows], caption=_CAPTION)


PRESENTER = TunePresenter()
