"""JSON of a pick: what to run, what it was chosen from, and why."""

from __future__ import annotations

from ggbench.decisions.pick.needs import RULES, Needs, Workload, workload_text
from ggbench.decisions.pick.record import (
    Alternative,
    Candidate,
    Checked,
    Loss,
    NeedCheck,
    Pick,
    TurnSpeed,
)
from ggbench.decisions.pick.run_commands import RunCommands
from ggbench.decisions.pick.show import reason
from ggbench.engines.contract import EngineConfig
from ggbench.show.document import Document, Field, Shape, by_name, field, many, of, within
from ggbench.show.plan_document import MEMORY
from ggbench.show.run_documents import ENDS, ends, expected
from ggbench.sizing.plan_record import PlanRow


def _row(names: str) -> tuple[Field, ...]:
    return of(PlanRow, names, lambda candidate: candidate.row)


_LOSS = Shape(
    "Loss",
    "What is lost in quality.",
    field("kld", float, get=lambda loss: loss.nats.value),
    field("kld_ci95", ENDS, get=lambda loss: ends(loss.nats)),
    of(Loss, "basis source"),
)
_QUALITY = Shape(
    "Quality",
    "Nats for each token that are lost, and of what.",
    expected("kld", "", lambda candidate: candidate.loss),
    field("weights", _LOSS | None, "Null is unknown.", lambda candidate: candidate.weights_loss),
    field("cache", _LOSS | None, "Null is unknown.", lambda candidate: candidate.cache_loss),
    field("joint", _LOSS | None, "Null is unknown.", lambda candidate: candidate.joint_loss),
)
_CANDIDATE = Shape(
    "Candidate",
    "",
    _row("model quant"),
    field("selector", str, "The QUANT argument.", lambda candidate: candidate.selector or candidate.row.quant),
    _row("type_k type_v provenance file?"),
    of(Candidate, "n_ctx max_n_ctx offered_n_ctx probed_by"),
    _row("n_ctx_train n_params bpw file_bytes weight_bytes needed_bytes left_bytes fits"),
    of(Candidate, "download_bytes"),
    expected("expected_tok_s", "", lambda candidate: candidate.speed and candidate.speed.tok_s),
    expected(
        "turn_s",
        "Seconds of prompt and answer; null where nothing is known of prompts.",
        lambda candidate: candidate.speed and candidate.speed.turn_s,
    ),
    of(TurnSpeed, "speed_basis=basis speed_source=source", lambda candidate: candidate.speed, maybe=True),
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
_REASONED = Shape("Reasoned", "A candidate, and why.", _CHECKED.fields, field("reason", str))


def _reasoned(pick: Pick, checked: Checked | None) -> dict[str, object] | None:
    return None if checked is None else _REASONED.value(checked, reason=" ".join(reason(pick)))


PICK = Document(
    "pick",
    "pick [MODEL [QUANT...]]",
    "The quant and the KV cache to run.",
    field(
        "pick",
        _REASONED | None,
        "What to run; null where nothing meets the needs.",
        lambda pick: _reasoned(pick, pick.recommended),
    ),
    field(
        "alternatives",
        many(Shape("Alternative", "", of(Alternative, "label"), within(lambda each: each.checked, _CHECKED.fields))),
    ),
    field("front", many(_CANDIDATE), "What no other is better than in all that is known."),
    field("candidates", many(_CHECKED), get=lambda pick: pick.checked),
    field("commands", RunCommands | None),
    of(Pick, "changes"),
    field(
        "nearest_miss",
        _REASONED | None,
        "Where nothing meets the needs.",
        lambda pick: _reasoned(pick, pick.nearest_miss),
    ),
    field(
        "workload",
        Shape(
            "Workload",
            "",
            of(Workload, "name n_prompt n_gen n_depth", lambda needs: needs.workload),
            field("definition", str, get=workload_text),
        ),
        get=lambda pick: pick.needs,
    ),
    field("needs", Shape("Needs", "", of(Needs, "n_ctx max_loss prefer min_tok_s=tok_s little_loss"))),
    of(Pick, "n_models"),
    field("rules", list[str], "How the pick is made, a sentence each.", lambda pick: RULES),
    field("machine", MEMORY),
    field("config", EngineConfig, "How the model is to be loaded, by its engine's own names."),
)
"""Of a `Pick`, with the commands, the `Budget` as `machine` and the config."""
