"""Documents of models that are not measured: files, the catalog, repos, plans, limits and picks."""

from typing import Literal

from ggbench.decisions.pick.needs import Needs, Workload
from ggbench.decisions.pick.record import Alternative, Candidate, Checked, Loss, NeedCheck, Pick, TurnSpeed
from ggbench.decisions.pick.run_commands import RunCommands
from ggbench.gguf_file.model_file import ModelFile
from ggbench.sizing.plan_record import Budget, PlanRow
from ggbench.sizing.theory.hardware import Hardware
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import SchemeLimits
from ggbench.sizing.theory.weights import Parameters, Weights
from ggbench.stats.decode_timing import Bandwidth
from tests.schemas.measured import CONFIG, ENDS, NUMBER
from tests.schemas.shapes import Fields, Struct, about, by, many, of, one, struct

_MACHINE: Fields = {
    **of(Budget, "device on_gpu memory_bytes memory_source reserve_bytes reserve_source"),
    "budget_bytes": one(Budget, "usable_bytes"),
    "bandwidth_bytes_per_s": one(Bandwidth, "bytes_per_s", maybe=True),
    "bandwidth_source": one(Bandwidth, "source", maybe=True),
}
_LOSS = struct("Loss", "What is lost in quality.", {"kld": float, "kld_ci95": ENDS}, of(Loss, "basis source"))
_CANDIDATE: Fields = {
    **of(PlanRow, "model quant"),
    "selector": about(str, "The QUANT argument."),
    **of(PlanRow, "type_k type_v provenance"),
    "file": about(str | None, "Path of the file or its first shard."),
    **of(Candidate, "n_ctx max_n_ctx offered_n_ctx probed_by"),
    **of(PlanRow, "n_ctx_train n_params bpw file_bytes weight_bytes needed_bytes left_bytes fits"),
    **of(Candidate, "download_bytes"),
    "expected_tok_s": NUMBER,
    "expected_tok_s_ci95": ENDS,
    "turn_s": about(NUMBER, "Seconds of prompt and answer; null where nothing is known of prompts."),
    "turn_s_ci95": ENDS,
    "speed_basis": one(TurnSpeed, "basis", maybe=True),
    "speed_source": one(TurnSpeed, "source", maybe=True),
    "quality": struct(
        "Quality",
        "Nats for each token that are lost, and of what.",
        {"kld": NUMBER, "kld_ci95": ENDS},
        {part: about(_LOSS | None, "Null is unknown.") for part in ("weights", "cache", "joint")},
    ),
    **of(PlanRow, "outcome"),
    "problem": one(PlanRow, "reason", maybe=True),
    **of(PlanRow, "notes"),
}
_CHECKED: Fields = {
    **_CANDIDATE,
    **of(Checked, "meets"),
    "checks": about(
        by(struct("NeedCheck", "", of(NeedCheck, "wanted value is_met is_close short_by"))),
        "By the need: memory, speed, loss.",
    ),
}
_REASONED = struct("Reasoned", "A candidate, and why.", _CHECKED, {"reason": str})
_PICKED: Fields = {
    "pick": about(_REASONED | None, "What to run; null where nothing meets the needs."),
    "alternatives": many(struct("Alternative", "", of(Alternative, "label"), _CHECKED)),
    "front": about(many(struct("Candidate", "", _CANDIDATE)), "What no other is better than in all that is known."),
    "candidates": many(struct("Checked", "", _CHECKED)),
    "commands": RunCommands | None,
    **of(Pick, "changes"),
    "nearest_miss": about(_REASONED | None, "Where nothing meets the needs."),
    "workload": struct("Workload", "", of(Workload, "name n_prompt n_gen n_depth"), {"definition": str}),
    "needs": struct(
        "Needs", "", of(Needs, "n_ctx max_loss prefer"), {"min_tok_s": one(Needs, "tok_s")}, of(Needs, "little_loss")
    ),
    **of(Pick, "n_models"),
    "rules": about(many(str), "How the pick is made, a sentence each."),
    "machine": struct("Machine", "The memory to keep within.", _MACHINE),
    **CONFIG,
}

_REGIME = struct("Regime", "", {"bound": Literal["weights", "compute", "kv"], "first_n": int, "last_n": int})
_PROMPT = struct(
    "Prompt",
    "The time that a prompt takes at least.",
    {"n_prompt": int, "read_ms": float, "compute_ms": float, "first_token_ms": float, "floor_ms": float},
)
_SCHEME = struct(
    "Scheme",
    "Limits of one weight and KV type at one batch size.",
    of(SchemeLimits, "scheme"),
    {"weights": one(Weights, "name")},
    of(Weights, "bpw"),
    of(SchemeLimits, "batch_size"),
    {
        "resident_bytes": int,
        "read_bytes": about(int, "Of the weights, for one step."),
        "printed": about(str, "W, B and the context, rounded as in the article."),
    },
    of(SchemeLimits, "w_tokens_per_ms b_ms max_n_ctx fits"),
    {
        "knees": about(many(int) | None, "Last prompt length before what bounds it changes."),
        "regimes": about(many(_REGIME) | None, "What bounds a prompt, by its length."),
    },
    of(SchemeLimits, "decode"),
    {"prefill": about(many(_PROMPT) | None, "At powers of two, and at the longest.")},
)
_LIMITS: Fields = {
    "model": str,
    "convention": struct(
        "Convention",
        "What the prefixes of the figures mean.",
        {"name": str, "giga": int, "tera": int, "meaning": str},
    ),
    "machine": struct(
        "Hardware", "", of(Hardware, "name memory_bytes"), {"memory_source": str | None},
        of(Hardware, "bandwidth_bytes_per_s"), {"bandwidth_source": str | None}, of(Hardware, "compute_flop_per_s"),
        {"compute_source": str | None},
    ),
    "parameters": struct(
        "Parameters",
        "Counted by role.",
        of(Parameters, "layers layers_active lm_head active embedding total n_expert n_expert_used"),
    ),
    "kv": struct(
        "Kv", "The KV cache.", of(KvCache, "params_per_token bytes_per_token type_k type_v window"),
        {"windowed_bytes_per_token": int}, of(KvCache, "state_bytes"), {"remark": str | None},
    ),
    **of(ModelFile, "n_ctx_train"),
    "rows": many(_SCHEME),
}  # fmt: skip


def documents() -> dict[str, Struct]:
    """Return the documents by the names in their `schema`."""
    found: dict[str, tuple[str, Fields]] = {
        "pick": ("The quant and the KV cache to run.", _PICKED),
        "limits": ("Theoretical limits of a model.", _LIMITS),
    }
    return {name: struct("Document", text, fields) for name, (text, fields) in found.items()}
