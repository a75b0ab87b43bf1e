"""Describe a pick to programs: the commands that run it, and its JSON."""

from __future__ import annotations

import operator

from msgspec.structs import replace

from ggbench.decisions.loss import Loss
from ggbench.decisions.pick.needs import RULES, ChatTurn, Needs, workload_text
from ggbench.decisions.pick.order import is_comfortable
from ggbench.decisions.pick.record import Alternative, Candidate, Checked, NeedCheck, Pick, Reason, TurnSpeed
from ggbench.decisions.pick.run_commands import RunCommands, run_commands
from ggbench.decisions.pick.sentences import reason
from ggbench.decisions.pick.wording import candidate_name
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.machine.host import default_threads
from ggbench.show.document import Document, Field, Shape, by_name, field, many, of, within
from ggbench.show.plan import MEMORY
from ggbench.show.run_documents import ENDS, ends, expected
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, PlanRow
from ggbench.units import MIB

_LEAST_CACHE_MIB = 256
"""A smaller prompt cache is turned off."""


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
    """Return the main memory [MiB] that a prompt cache may take beside a GPU; None for llama-server's default."""
    if budget.cache_ram_bytes is not None:
        return budget.cache_ram_bytes // MIB
    host = next((each for each in candidate.row.devices if each.device == HOST_DEVICE), None)
    is_known = budget.on_gpu and (candidate.is_split or budget.host is not None)
    if not is_known or host is None or host.left_bytes is None or host.left_bytes >= CACHE_RAM_BYTES:
        return None
    left_mib = host.left_bytes // MIB
    return left_mib if left_mib >= _LEAST_CACHE_MIB else 0


def _row(names: str) -> tuple[Field, ...]:
    return of(PlanRow, names, lambda candidate: candidate.row)


_LOSS = Shape(
    "Loss",
    "The loss of quality.",
    field("kld", float, get=lambda loss: loss.nats.value),
    field("kld_ci95", ENDS, get=lambda loss: ends(loss.nats)),
    of(Loss, "basis source"),
)
_QUALITY = Shape(
    "Quality",
    "Loss in nats per token, by cause.",
    expected("kld", "", lambda candidate: candidate.loss),
    *(
        field(name, _LOSS | None, "Null means unknown.", operator.attrgetter(f"{name}_loss"))
        for name in ("weights", "cache", "joint")
    ),
)
_PLACEMENT = Shape(
    "Placement",
    "What of the model is where.",
    _row("n_gpu_layers"),
    field("n_cpu_moe", int, "Layers whose experts stay in main memory.", lambda each: each.setup.n_cpu_moe),
    field("tensor_split", list[float], "Shares of several GPUs.", lambda each: each.setup.tensor_split),
    of(Candidate, "host_bytes"),
)
_CANDIDATE = Shape(
    "Candidate",
    "",
    _row("model quant"),
    field("selector", str, "The QUANT argument.", lambda candidate: candidate.quant),
    _row("type_k type_v provenance file?"),
    of(Candidate, "n_ctx max_n_ctx offered_n_ctx probed_by"),
    _row("n_ctx_train n_params bpw file_bytes weight_bytes needed_bytes left_bytes fits"),
    field("placement", _PLACEMENT, get=lambda candidate: candidate),
    field("flash_attn", str, "`auto`, `on` or `off`.", lambda candidate: candidate.setup.flash_attn),
    of(Candidate, "download_bytes"),
    _row("decode at_n_ctx"),
    expected("expected_tok_s", "", lambda candidate: candidate.speed and candidate.speed.tok_s),
    expected(
        "turn_s",
        "Seconds for prompt and answer; null if prompt speed is unknown.",
        lambda candidate: candidate.speed and candidate.speed.turn_s,
    ),
    of(
        TurnSpeed,
        "speed_basis=basis speed_source=source speed_rows=rows",
        lambda candidate: candidate.speed,
        maybe=True,
    ),
    field("quality", _QUALITY, get=lambda candidate: candidate),
    _row("outcome problem=reason? notes"),
)
_CHECK = Shape("NeedCheck", "", of(NeedCheck, "wanted value is_met is_close short_by"))
_CHECKED = Shape(
    "Checked",
    "",
    within(lambda checked: checked.candidate, _CANDIDATE.fields),
    of(Checked, "meets"),
    field(
        "checks",
        by_name(_CHECK),
        "By the need: memory, speed, loss.",
        lambda checked: {check.need: check for check in checked.checks},
    ),
)
_REASON = Shape(
    "Reason",
    "Why not another quant.",
    of(Reason, "kind size"),
    field("quant", str, get=lambda each: each.other.candidate.quant),
    field("other", str, "The best way to run it.", lambda each: candidate_name(each.other.candidate)),
)
_REASONED = Shape(
    "Reasoned",
    "A candidate and the reasons.",
    _CHECKED.fields,
    field("comfortable", bool | None, "Whether its speed is comfortable for the workload; null if unknown."),
    field("reason", str),
    field(
        "reasons", many(_REASON), "Why not the quant that loses just less, and the one that loses just more."
    ),
)


def _reasoned(pick: Pick, checked: Checked | None) -> dict[str, object] | None:
    if checked is None:
        return None
    return _REASONED.value(
        checked,
        comfortable=is_comfortable(checked.candidate, pick.needs),
        reason=" ".join(reason(pick)),
        reasons=pick.reasons,
    )


PICK = Document(
    "pick",
    "pick [MODEL [QUANT...]]",
    "The quant and the KV cache to run.",
    field(
        "pick",
        _REASONED | None,
        "The one to run; null if none meets the needs.",
        lambda pick: _reasoned(pick, pick.recommended),
    ),
    field(
        "alternatives",
        many(
            Shape(
                "Alternative", "", of(Alternative, "label"), within(lambda each: each.checked, _CHECKED.fields)
            )
        ),
    ),
    field("front", many(_CANDIDATE), "Candidates that no other dominates."),
    field("candidates", many(_CHECKED), get=lambda pick: pick.checked),
    field("commands", RunCommands | None),
    of(Pick, "changes"),
    field(
        "nearest_miss",
        _REASONED | None,
        "The nearest miss, if no candidate meets the needs.",
        lambda pick: _reasoned(pick, pick.nearest_miss),
    ),
    field(
        "workload",
        Shape(
            "ChatTurn",
            "",
            of(ChatTurn, "name n_prompt n_gen n_depth", lambda needs: needs.workload),
            field("definition", str, get=workload_text),
        ),
        get=lambda pick: pick.needs,
    ),
    field(
        "needs",
        Shape("Needs", "", of(Needs, "n_slots n_ctx n_ctx_slot max_loss prefer min_tok_s=tok_s little_loss")),
    ),
    of(Pick, "n_models"),
    field("rules", list[str], "The rules of the pick, in order.", lambda pick: RULES),
    field("machine", MEMORY),
    field("config", EngineConfig, "The engine's settings to load it with, by its own names."),
)
