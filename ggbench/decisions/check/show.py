"""Show what a pasted command does: the verdict, a better command, and the findings; and as JSON."""

from __future__ import annotations

import shlex

import msgspec

from ggbench.decisions.check.findings import Checked, LineFinding
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.document import Document
from ggbench.show.figure import figures_type
from ggbench.show.names import quant_name
from ggbench.show.plan import (
    DEVICE_FIGURES,
    MACHINE,
    ROW,
    assumed_memory,
    estimated_from,
    machine_values,
    remedy,
    row_values,
    shortage,
)
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget
from ggbench.text import in_words
from ggbench.units import format_bytes, format_length, format_number


def check_answer(checked: Checked, budget: Budget, notes: tuple[str, ...]) -> Answer:
    """Return whether a command fits, a better one, the findings, and what lies in each memory.

    `notes` say what stands for its model, and which of its options are not counted.
    """
    row = checked.row
    findings: list[tuple[str, str]] = [(each.kind, each.text) for each in checked.findings]
    table = Table(DEVICE_FIGURES, row.devices, say("check.by_device", quant=quant_name(row.subject)))
    is_told = row.fits and len(budget.devices) == 1
    unhelped = "" if row.fits or checked.better else remedy(budget, row)
    return Answer(
        _verdict(checked),
        checked.better,
        [Facts(findings) if findings or not row.fits else say("check.nothing"), *([] if is_told else [table])],
        [unhelped, *notes, assumed_memory(budget, [row]), estimated_from(budget, [row])],
        [*([table] if is_told else []), Facts([("as planned", row.command)])],
    )


def _verdict(checked: Checked) -> str:
    row, left = checked.row, format_bytes(checked.row.left_bytes)
    refused = in_words(checked.refused)
    it = say("check.refused", options=refused) if refused else say("check.it")
    if not row.fits:
        said = say("check.fits_not", it=it, short=shortage(row))
    elif row.expected is not None:
        n_ctx = format_length(row.n_ctx_slot or 0)
        at = say("check.undrafted_at", n_ctx=n_ctx) if checked.has_drafts else n_ctx
        tok_s = f"~{format_number(row.expected.value, 2)}"
        said = say("check.fits_at", it=it, left=left, tok_s=tok_s, n_ctx=at)
    else:
        said = say("check.fits", it=it, left=left)
    return f"{said} {say('check.adapted', options=checked.adapted)}" if checked.adapted else said


def unused_options(idle: list[str], uncounted: tuple[str, ...]) -> tuple[str, ...]:
    """Return which options concern neither memory nor speed, and which do and are not counted; each once."""
    notes = [say("check.uncounted", options=in_words(uncounted))] if uncounted else []
    return (*notes, *([say("check.idle_options", options=in_words(idle))] if idle else []))


FINDING = figures_type(
    "Finding",
    (),
    "What an option of the command costs, gains or does not do.",
    {"text": str},
    LineFinding,
)
CHECK = Document(
    "check",
    "check LINE",
    "Whether a llama-server command fits, and what it wastes.",
    figures_type(
        "Check",
        (),
        "Whether a llama-server command fits, and what it wastes.",
        {
            "line": str,
            "better": str,
            "adapted": str,
            "machine": MACHINE,
            "row": ROW,
            "findings": list[FINDING],  # type: ignore[valid-type]
            "notes": list[str],
        },
    ),
)


def check_record(checked: Checked, budget: Budget, notes: tuple[str, ...]) -> dict[str, object]:
    """Return a check for JSON."""
    line = checked.line
    return {
        "line": shlex.join([*line.program, *(word for each in line.given for word in each.words)]),
        "better": checked.better,
        "adapted": checked.adapted,
        "machine": machine_values(budget),
        "row": row_values(checked.row),
        "findings": [msgspec.to_builtins(each) | {"text": each.text} for each in checked.findings],
        "notes": notes,
    }
