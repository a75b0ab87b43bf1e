"""Show a pick: its figures, the answer that people read, and its JSON."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.decisions.pick.choose import LIMITS, RULES
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Candidate, Listed, NeedCheck, Pick
from ggbench.decisions.pick.run_commands import RunCommands, RunSettings
from ggbench.decisions.pick.sentences import cache_text, candidate_name, headline, notes, said
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.machine.host import default_threads
from ggbench.models.subject import model_name
from ggbench.record import Record
from ggbench.show import FITS_NOT, words
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, facts_of, figure_values, figures_type, member
from ggbench.show.plan import MACHINE, MACHINE_FIGURES, basis_mark, machine_values, span_text, value_only
from ggbench.show.text import SPEED_FROM
from ggbench.show.words import say
from ggbench.sizing.plan_record import Budget, Change
from ggbench.units import MIB, counted, format_bytes, format_length

_MOST_ROWS, _MOST_QUANTS = 4, 6
"""Rows of a table, and quants up to which each has one: people named them."""


def settings_of(candidate: Candidate, budget: Budget) -> RunSettings | None:
    """Return what runs a candidate as planned; None without a file.

    Where the CPU computes, threads are those that speeds are measured with here: the programs' own defaults may count
    cores that a container or `taskset` withholds.
    """
    if candidate.to_run is None:
        return None
    setup = candidate.setup
    if budget.is_here and (not budget.on_gpu or candidate.is_split):
        setup = setup.with_threads(default_threads())
    return RunSettings(
        candidate.to_run,
        setup,
        budget.backends,
        budget.projector,
        budget.draft,
        _cache_ram_mib(candidate, budget),
    )


def _cache_ram_mib(candidate: Candidate, budget: Budget) -> int | None:
    """Return the main memory [MiB] that a prompt cache may take; None for llama-server's default."""
    left_bytes = candidate.left_bytes
    if budget.on_gpu:
        left_bytes = candidate.row.devices[-1].left_bytes if candidate.row.devices else None
    return None if left_bytes is None or left_bytes >= CACHE_RAM_BYTES else left_bytes // MIB


def _left_text(left_bytes: int) -> str:
    return format_bytes(left_bytes) if left_bytes >= 0 else f"{FITS_NOT} {format_bytes(left_bytes)}"


FIGURES: tuple[Figure[Listed], ...] = (
    member("label", ""),
    Figure("model", "model", lambda row: model_name(row.candidate.row.subject)),
    member("quant", "quant", path="candidate.quant", meaning="The QUANT argument."),
    member("options", "options", path="candidate.options", meaning="Of its placement."),
    Figure("cache", "KV", lambda row: cache_text(row.candidate), meaning="Types of the KV cache."),
    member("tok_s", "tok/s", value_only, "candidate.tok_s", meaning="Speed of each user with a full context.",
           mark=lambda row: basis_mark(row.candidate.tok_s), is_estimate=True),
    member("kld", "loss", value_only, "candidate.loss", is_estimate=True,
           mark=lambda row: basis_mark(row.candidate.loss),
           meaning="Mean KL divergence of weights and KV cache from the original, in nats. A typical one's interval "
                   "is the range over models."),
    member("needed_bytes", "memory", format_bytes, "candidate.row.needed_bytes", priority=5),
    member("left_bytes", "left", _left_text, "candidate.left_bytes", priority=4),
    member("session_s", "session", span_text, "candidate.speed.total_s", priority=1, is_estimate=True,
           mark=lambda row: basis_mark(row.candidate.speed and row.candidate.speed.total_s),
           meaning="Seconds of all turns of the workload's session."),
    member("max_n_ctx", "max n_ctx", path="candidate.max_n_ctx", priority=3, meaning="The longest that fits."),
)  # fmt: skip
_TO_GET: Figure[Listed] = member(
    "download_bytes", "download", lambda n: format_bytes(n) if n else "here", "candidate.download_bytes", priority=3,
    meaning="Bytes to download before it can be run.",
)  # fmt: skip
_SCORE: Figure[Listed] = Figure(
    "score", "GPQA", lambda row: row.candidate.score or None, "{:.0f}".format, priority=2,
    mark=lambda row: "" if row.candidate.score_source else "~",
    meaning="Percent of GPQA Diamond by its publisher; (~) of a smaller model of its kind.",
)  # fmt: skip
_MORE: tuple[Figure[Listed], ...] = (
    member("expected_tok_s", "answers tok/s", path="candidate.speed.tok_s", priority=3, is_estimate=True,
           meaning="Mean speed of the session's answers."),
    *(member(f"{which}_wait_s", f"{which} wait", span_text, f"candidate.speed.{which}_wait_s", priority=4,
             is_estimate=True, meaning=f"Seconds until the {which} answer of the session begins.")
      for which in ("first", "last")),
    member("speed_basis", "speed from", SPEED_FROM.__getitem__, "candidate.speed.tok_s.basis", priority=5),
    _TO_GET,
    Figure("missed", "misses",
           lambda row: row.candidate.row.reason or ", ".join(each.need for each in row.candidate.missed),
           meaning="The needs that it misses, or why it is not sized."),
)  # fmt: skip
_ONLY_JSON: tuple[Figure[Listed], ...] = (
    *(member(path.rpartition(".")[2], path, path=f"candidate.{path}") for path in (
        "row.type_k", "row.type_v", "row.file", "row.file_bytes", "row.provenance", "n_ctx", "row.n_ctx_train",
        "row.n_params",
        "row.weight_bytes", "row.bpw", "row.n_gpu_layers", "setup.n_cpu_moe", "host_bytes", "fits", "probed_by",
        "row.outcome", "row.reason", "score_source",
    )),
    _SCORE,
    member("kld_basis", "loss from", path="candidate.loss.basis", meaning="The weakest basis of the loss's parts."),
    member("weights_kld", "loss of weights", path="candidate.weights_loss", is_estimate=True),
    member("cache_kld", "loss of cache", path="candidate.cache_loss", is_estimate=True),
    member("meets", "meets", path="candidate.meets", meaning="Whether it meets the needs; null if unknown."),
)  # fmt: skip
_ALL = (*FIGURES, *_MORE, *_ONLY_JSON)


def _figures(
    pick: Pick, rows: tuple[Listed, ...], figures: tuple[Figure[Listed], ...] = FIGURES
) -> list[Figure[Listed]]:
    """Return the figures of a table; the header of a speed says at which context it is."""
    n_ctx = max(row.candidate.n_ctx for row in rows) // pick.needs.n_slots
    at = {"tok_s": f"tok/s at {format_length(n_ctx)}", "session_s": f"{pick.needs.workload.name} session"}
    is_asked = pick.has_rivals or pick.needs.workload.name != "chat"
    shown = [each for each in figures if {"model": pick.has_rivals, "session_s": is_asked}.get(each.key, True)]
    return [replace(each, header=at.get(each.key, each.header)) for each in shown]


def pick_answer(pick: Pick, budget: Budget, commands: RunCommands | None) -> Answer:
    """Return what to run and the command, the pick among its alternatives, and why."""
    rows = _rows(pick)
    every = (*pick.listed, *(each for each in pick.rest if each.label != "dominated"))
    shown = _figures(pick, rows)
    if pick.n_current:
        shown = [_SCORE if each.key == "needed_bytes" else each for each in shown]
    return Answer(
        headline(pick),
        "" if commands is None else commands.llama_server,
        [Table(shown, rows)],
        notes(pick, budget, commands.notes if commands else ()),
        [
            Facts([("", said(pick, each)) for each in pick.why]),
            Facts(_facts(pick, budget, commands)),
            Table(
                _figures(pick, every, (*FIGURES, *_MORE)),
                every,
                "all candidates",
                lambda row: "dim" if row.candidate.missed else "",
            ),
        ],
    )


def _rows(pick: Pick) -> tuple[Listed, ...]:
    """Return what is listed and, if there are few quants, one of each other: people named them."""
    front, found = pick.listed[:_MOST_ROWS], sorted(pick.rest, key=lambda row: bool(row.candidate.missed))
    quants = {row.candidate.quant: row for row in (*reversed(found), *reversed(pick.listed))}
    is_few = len(quants) <= _MOST_QUANTS and not pick.has_rivals
    others = (row for row in quants.values() if is_few and row not in front)
    return *front, *others


def rules() -> list[tuple[str, str]]:
    """Return the names of the rules of the choice, and their sentences with their limits."""
    limits = {name: f"{limit:.2g}" for name, limit in LIMITS.items()}
    return [(key, say(f"pick_rules.{key}", **limits)) for key in RULES]


def _workload(needs: Needs) -> str:
    session = needs.session
    return say(
        "pick.workload",
        name=session.name,
        turns=counted(len(session.turns), "turn"),
        n_tokens=session.n_tokens,
        n_ctx=needs.n_ctx_slot,
        source=session.source,
    )


def _facts(pick: Pick, budget: Budget, commands: RunCommands | None) -> list[tuple[str, str]]:
    shown, needs = [row.candidate for row in pick.listed], pick.needs
    speeds = [one for each in shown if each.speed for one in (each.speed.tok_s, each.speed.total_s) if one]
    return [
        ("workload", _workload(needs)),
        *facts_of(MACHINE_FIGURES, budget),
        *dict.fromkeys(("speed", each.source) for each in speeds),
        *((f"loss of {candidate_name(own)}", own.loss.source) for own in shown if own.loss),
        *((f"max n_ctx of {candidate_name(own)}", f"run {own.probed_by}") for own in shown if own.probed_by),
        *(
            (f"{own.model_key} GPQA", say("pick.score", score=own.score, source=own.score_source))
            for own in shown
            if own.score_source
        ),
        ("download", "" if commands is None else commands.pull),
    ]


class SaidReason(Record):
    """Why a candidate is the pick, or is not."""

    key: str
    about: str
    """The candidate."""
    text: str


_CANDIDATE = figures_type(
    "Candidate",
    _ALL,
    "One quant with one KV cache in one place; null is unknown.",
    {"checks": list[NeedCheck], "notes": list[str]},
)


PICK = Document(
    "pick",
    "pick [MODEL [QUANT...]]",
    "The quant and the KV cache to run.",
    figures_type(
        "Pick",
        (),
        records={
            "answer": str,
            "pick": _CANDIDATE | None,
            "nearest_miss": _CANDIDATE | None,
            "comfortable": bool | None,
            "notes": list[str],
            "reasons": list[SaidReason],
            "commands": RunCommands | None,
            "alternatives": list[int],
            "candidates": list[_CANDIDATE],  # type: ignore[valid-type]
            "instead": str,
            "changes": list[Change],
            "needs": Needs,
            "machine": MACHINE,
            "config": EngineConfig,
        },
    ),
)


def pick_record(
    pick: Pick, budget: Budget, commands: RunCommands | None, config: EngineConfig
) -> dict[str, object]:
    """Return the members of the document."""
    every = [
        figure_values(_ALL, row)
        | {"checks": row.candidate.checks, "notes": list(map(words.said, row.candidate.row.notes))}
        for row in (*pick.listed, *pick.rest)
    ]
    return {
        "answer": headline(pick),
        "pick": every[0] if pick.recommended else None,
        "nearest_miss": every[0] if pick.nearest_miss else None,
        "comfortable": pick.comfortable,
        "notes": notes(pick, budget),
        "reasons": [
            SaidReason(each.key, candidate_name(each.about, with_model=pick.has_rivals), said(pick, each))
            for each in pick.why
        ],
        "commands": commands,
        "alternatives": list(range(1, len(pick.listed))),
        "candidates": every,
        "instead": pick.instead,
        "changes": pick.nearest_miss.row.changes if pick.nearest_miss else (),
        "needs": pick.needs,
        "machine": machine_values(budget),
        "config": config,
    }
