"""Show a pick: its figures, the answer that people read, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from ggbench.decisions.pick.choose import RULES
from ggbench.decisions.pick.needs import Needs, needs_in_brief
from ggbench.decisions.pick.record import Candidate, Checked, Listed, NeedCheck, Pick, PublishedScore
from ggbench.decisions.pick.run_commands import RunCommands, run_commands
from ggbench.decisions.pick.sentences import (
    cache_text,
    candidate_name,
    headline,
    notes,
    reason,
)
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.machine.host import default_threads
from ggbench.show import FITS_NOT
from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.document import Document
from ggbench.show.figure import Figure, facts_of, figure_values, figures_type, member
from ggbench.show.names import model_name
from ggbench.show.plan import MACHINE, MACHINE_FIGURES, machine_values, speed_mark, value_only
from ggbench.show.text import SPEED_FROM
from ggbench.show.words import said, say
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, Change
from ggbench.units import MIB, format_bytes, format_length

_LEAST_CACHE_MIB = 256
"""A smaller prompt cache is turned off."""
_MOST_ROWS = 4


def commands_of(candidate: Candidate, budget: Budget) -> RunCommands | None:
    """Return the commands that run a candidate as planned; None without a file.

    Where the CPU computes, they name the threads that speeds are measured with here: the programs' own defaults may
    count cores that a container or `taskset` withholds.
    """
    if candidate.to_run is None:
        return None
    setup = replace(
        candidate.setup, n_ctx=candidate.n_ctx, type_k=candidate.cache[0], type_v=candidate.cache[1]
    )
    if budget.is_here and (not budget.on_gpu or candidate.is_split):
        setup = setup.with_threads(default_threads())
    return run_commands(
        candidate.to_run,
        setup,
        on_gpu=budget.on_gpu,
        projector=budget.projector,
        draft=budget.draft,
        cache_ram_mib=_cache_ram_mib(candidate, budget),
    )


def _cache_ram_mib(candidate: Candidate, budget: Budget) -> int | None:
    """Return the main memory [MiB] that a prompt cache may take; None for llama-server's default."""
    if budget.cache_ram_bytes is not None:
        return budget.cache_ram_bytes // MIB
    left_bytes = candidate.left_bytes
    if budget.on_gpu:
        host = next((each for each in candidate.row.devices if each.device == HOST_DEVICE), None)
        is_known = host is not None and (candidate.is_split or budget.host is not None)
        left_bytes = host.left_bytes if host is not None and is_known else None
    if left_bytes is None or left_bytes >= CACHE_RAM_BYTES:
        return None
    left_mib = left_bytes // MIB
    return left_mib if left_mib >= _LEAST_CACHE_MIB else 0


def _left_text(left_bytes: int) -> str:
    return format_bytes(left_bytes) if left_bytes >= 0 else f"{FITS_NOT} {format_bytes(left_bytes)}"


def _download_text(n_bytes: int) -> str:
    return format_bytes(n_bytes) if n_bytes else "here"


FIGURES: tuple[Figure[Listed], ...] = (
    member("label", ""),
    Figure("model", "model", lambda row: model_name(row.candidate.row.subject)),
    member("quant", "quant", path="candidate.quant", meaning="The QUANT argument."),
    Figure("options", "options", lambda row: " ".join(row.candidate.options), meaning="Of its placement and -fa."),
    Figure("cache", "KV", lambda row: cache_text(row.candidate), meaning="Types of the KV cache."),
    member("tok_s", "tok/s", value_only, "candidate.tok_s", meaning="Speed of each user with a full context.",
           mark=lambda row: speed_mark(row.candidate.tok_s), is_estimate=True),
    member("kld", "loss", value_only, "candidate.loss", is_estimate=True,
           mark=lambda row: "~" if row.candidate.loss and row.candidate.loss.is_estimate else "",
           meaning="Mean KL divergence of weights and KV cache from the original, in nats. A typical one's interval "
                   "is the range over models."),
    member("needed_bytes", "memory", format_bytes, "candidate.row.needed_bytes", priority=3),
    member("left_bytes", "left", _left_text, "candidate.left_bytes", priority=2),
    member("max_n_ctx", "max n_ctx", path="candidate.longest_n_ctx", priority=1, meaning="The longest that fits."),
)  # fmt: skip
_TO_GET: Figure[Listed] = member(
    "download_bytes", "download", _download_text, "candidate.download_bytes", priority=3,
    meaning="Bytes to download before it can be run.",
)  # fmt: skip
_MORE: tuple[Figure[Listed], ...] = (
    member("expected_tok_s", "answer tok/s", path="candidate.speed.tok_s", priority=3, is_estimate=True,
           meaning="Speed of the workload's answer."),
    member("turn_s", "turn s", path="candidate.speed.turn_s", priority=4, is_estimate=True,
           meaning="Seconds of the workload's prompt and answer."),
    member("speed_basis", "speed from", SPEED_FROM.__getitem__, "candidate.speed.tok_s.basis", priority=5),
    member("file_bytes", "file", format_bytes, "candidate.row.file_bytes", priority=6),
    member("download_bytes", "download", format_bytes, "candidate.download_bytes", priority=7),
    member("bpw", "BPW", path="candidate.row.bpw", priority=8),
    Figure("missed", "misses",
           lambda row: ", ".join(each.need for each in row.checked.missed) or row.candidate.row.reason,
           meaning="The needs that it misses, or why it is not sized."),
)  # fmt: skip
_ONLY_JSON: tuple[Figure[Listed], ...] = (
    *(member(path.rpartition(".")[2], path, path=f"candidate.{path}") for path in (
        "row.type_k", "row.type_v", "row.file", "row.provenance", "n_ctx", "row.n_ctx_train", "row.n_params",
        "row.weight_bytes", "row.n_gpu_layers", "setup.n_cpu_moe", "host_bytes", "fits", "probed_by",
        "row.outcome", "row.reason",
    )),
    member("speed_source", "speed", path="candidate.speed.tok_s.source"),
    member("kld_basis", "loss from", path="candidate.loss.basis", meaning="The weakest basis of the loss's parts."),
    member("kld_source", "loss", path="candidate.loss.source"),
    member("weights_kld", "loss of weights", path="candidate.weights_loss", is_estimate=True),
    member("cache_kld", "loss of cache", path="candidate.cache_loss", is_estimate=True),
    member("meets", "meets", path="checked.meets", meaning="Whether it meets the needs; null if unknown."),
)  # fmt: skip
_ALL = (*FIGURES, *_MORE, *_ONLY_JSON)


def _figures(pick: Pick, rows: tuple[Listed, ...]) -> list[Figure[Listed]]:
    """Return the figures of a table; the header of the speed says at which context it is."""
    lengths = {row.candidate.n_ctx // pick.needs.n_slots for row in rows}
    at = f"tok/s at {format_length(lengths.pop())}" if len(lengths) == 1 else "tok/s at its end"
    shown = [each for each in FIGURES if each.key != "model" or pick.has_rivals]
    return [replace(each, header=at) if each.key == "tok_s" else each for each in shown]


def pick_answer(pick: Pick, budget: Budget, commands: RunCommands | None) -> Answer:
    """Return what to run and the command, the pick among its alternatives, and why."""
    rows = pick.listed[:_MOST_ROWS]
    shown = _figures(pick, rows)
    if pick.n_current:
        shown = [_TO_GET if each.key == "needed_bytes" else each for each in shown]
    every = (*pick.listed, *pick.unlisted)
    mind = notes(pick, budget, commands.notes if commands else ())
    return Answer(
        headline(pick),
        "" if commands is None else commands.llama_server,
        [Table(shown, rows)],
        mind,
        [
            Facts([("", text) for text in reason(pick)]),
            Facts(_facts(pick, budget, commands)),
            Table(
                [*_figures(pick, every), *_MORE],
                every,
                "all candidates",
                lambda row: "dim" if row.checked.meets is False else "",
            ),
            Facts([(f"{number}.", rule) for number, rule in enumerate(RULES, 1)], "rules"),
        ],
    )


def _facts(pick: Pick, budget: Budget, commands: RunCommands | None) -> list[tuple[str, str]]:
    shown = [row.candidate for row in pick.listed]
    speeds = [each.speed.tok_s for each in shown if each.speed is not None]
    needs = pick.needs
    workload = "workload_longest" if needs.workload.n_depth is None else "workload"
    return [
        (
            "workload",
            say(f"pick.{workload}", **asdict(needs.workload), n_ctx=needs.n_ctx_slot, tok_s=needs.tok_s),
        ),
        ("needs", needs_in_brief(needs)),
        *facts_of(MACHINE_FIGURES, replace(budget, host=pick.main_memory or budget.host)),
        *dict.fromkeys(("speed", each.source) for each in speeds),
        *_losses_from(shown),
        *((f"max n_ctx of {candidate_name(own)}", f"run {own.probed_by}") for own in shown if own.probed_by),
        *dict.fromkeys(("left out", text) for text in _left_out(pick)),
        *((f"{each.model} GPQA", say("pick.score", **asdict(each))) for each in pick.scores),
        ("download", "" if commands is None else commands.pull),
    ]


def _losses_from(shown: Sequence[Candidate]) -> Iterator[tuple[str, str]]:
    """Yield where the losses of quants and of caches are from, each once."""
    mains = [(own.quant, own.joint_loss or own.weights_loss) for own in shown]
    caches = [(f"KV {cache_text(own)}", own.cache_loss) for own in shown if own.cache_loss.high]
    for name, loss in dict.fromkeys([*mains, *caches]):
        if loss is not None:
            yield f"loss of {name}", loss.source


def _left_out(pick: Pick) -> list[str]:
    """Return what could not be sized, with the reason."""
    rows = [each.candidate.row for each in pick.checked]
    return [f"{row.quant}: {row.reason}" for row in rows if row.outcome is Outcome.FAILED]


_CANDIDATE = figures_type(
    "Candidate",
    _ALL,
    "One quant with one KV cache in one place; null is unknown.",
    {"checks": list[NeedCheck], "notes": list[str]},
)


def _about(kind: Any, text: str) -> Any:  # noqa: ANN401 - a type
    return Annotated[kind, Meta(description=text)]


PICK = Document(
    "pick",
    "pick [MODEL [QUANT...]]",
    "The quant and the KV cache to run.",
    figures_type(
        "Pick",
        (),
        records={
            "answer": _about(str, "What to run, in a sentence."),
            "pick": _about(_CANDIDATE | None, "The one to run; null if none meets the needs."),
            "nearest_miss": _about(_CANDIDATE | None, "The nearest miss, if none meets the needs."),
            "comfortable": _about(bool | None, "Whether its speed is comfortable; null if unknown."),
            "notes": _about(list[str], "What to mind."),
            "reasons": _about(list[str], "Why it is the pick, and others are not."),
            "against": _about(
                dict[str, str], "The rule against others, by quant or, of several models, by model."
            ),
            "commands": RunCommands | None,
            "alternatives": list[_CANDIDATE],  # type: ignore[valid-type]
            "front": _about(list[_CANDIDATE], "Those that no other dominates."),  # type: ignore[valid-type]
            "candidates": _about(list[_CANDIDATE], "All, by model, cache and quant."),  # type: ignore[valid-type]
            "instead": _about(str, "The current model to run where this does not fit or is slow."),
            "scores": _about(
                list[PublishedScore], "What publishers report of the current models that are shown."
            ),
            "changes": _about(list[Change], "What would make the nearest miss fit, best first."),
            "needs": Needs,
            "rules": _about(list[str], "The rules of the pick, in order."),
            "machine": MACHINE,
            "config": _about(EngineConfig, "The engine's settings, by its own names."),
        },
    ),
)


def pick_record(
    pick: Pick, budget: Budget, commands: RunCommands | None, config: EngineConfig
) -> dict[str, object]:
    """Return the members of the document."""
    rows = (*pick.listed, *pick.unlisted)
    values = {
        row.candidate.name: figure_values(_ALL, row)
        | {"checks": row.checked.checks, "notes": list(map(said, row.candidate.row.notes))}
        for row in rows
    }

    def of(checked: Checked | None) -> dict[str, object] | None:
        return None if checked is None else values[checked.candidate.name]

    return {
        "answer": headline(pick),
        "pick": of(pick.recommended),
        "nearest_miss": of(pick.nearest_miss),
        "comfortable": pick.comfortable,
        "notes": notes(pick, budget),
        "reasons": reason(pick),
        "against": _against(pick),
        "commands": commands,
        "alternatives": [of(each.checked) for each in pick.alternatives],
        "front": [values[each.name] for each in pick.front],
        "candidates": [of(each) for each in pick.checked],
        "instead": pick.instead,
        "scores": pick.scores,
        "changes": pick.changes,
        "needs": pick.needs,
        "rules": RULES,
        "machine": machine_values(budget),
        "config": config,
    }


def _against(pick: Pick) -> dict[str, str]:
    """Return the rule against each candidate that one speaks against."""
    against = [each for each in pick.why if each.key.startswith("pick_against.")]
    own = pick.best and pick.best.candidate.model_key
    return {
        each.about.candidate.quant
        if each.about.candidate.model_key == own
        else each.about.candidate.model_key: each.key.partition(".")[2]
        for each in against
    }
