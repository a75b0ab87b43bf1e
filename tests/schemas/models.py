"""Documents of models that are not measured: files, the catalog, repos, plans, limits and picks."""

from __future__ import annotations

from typing import Literal

from ggbench.decisions.pick_record import (
    Alternative,
    Candidate,
    Checked,
    Loss,
    NeedCheck,
    Needs,
    Pick,
    TurnSpeed,
    Workload,
)
from ggbench.decisions.run_commands_record import RunCommands
from ggbench.engines.transformers.config_json import Config
from ggbench.engines.transformers.storage import Stored
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.hub.download import FileProgress
from ggbench.hub.hf_cache import VerifiedFile
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoSummary, RepoVariant
from ggbench.models.catalog import CatalogModel
from ggbench.models.checkpoints import FoundCheckpoint
from ggbench.models.disk import LocalModel
from ggbench.show.sizes_against import PublishedSize
from ggbench.sizing.change import Change, Program
from ggbench.sizing.plan_record import Budget, KvCacheTypes, PlanRow
from ggbench.sizing.theory.hardware import Convention, Hardware, KvReads
from ggbench.sizing.theory.kv_cache import KvCache
from ggbench.sizing.theory.limits import SchemeLimits
from ggbench.sizing.theory.weights import Parameters, Weights
from ggbench.stats.decode_timing import Bandwidth
from tests.schemas.measured import CONFIG, ENDS, NUMBER
from tests.schemas.published import ROW as PUBLISHED
from tests.schemas.shapes import Fields, Struct, about, by, many, of, one, sometimes, struct

_PROVENANCE: Fields = {"provenance": about(Literal["file", "twin"], "A twin has the true shape, no trained weights.")}
_WHY: Fields = {"reason": about(str | None, "Why it cannot be used; null where it can.")}
_FILES: Fields = {"files": about(many(str), "Paths, the shards in order.")}
_HEADER = "architecture n_params bpw weight_bytes n_ctx_train"

INSPECTED: Fields = {
    "model": one(ModelFile, "name"),
    "quant": str | None,
    **_FILES,
    **_PROVENANCE,
    **of(ModelFile, "file_bytes missing_bytes"),
    "gguf_version": int,
    **of(ModelFile, "big_endian header_sha256 architecture n_params bpw weight_bytes active_weight_bytes"),
    "kv_bytes_per_token": about(int | None, "KV cache in f16 for one position over all layers, ignoring any window."),
    "no_kv_reason": about(str | None, "Why that is not counted from the header."),
    **of(ModelFile, "n_layer n_embd n_head n_head_kv head_dim_k head_dim_v n_ff n_vocab n_ctx_train"),
    **of(ModelFile, "n_expert n_expert_used sliding_window"),
    "n_windowed_layers": int,
    "state_bytes": about(int | None, "Of layers whose state does not grow with the context."),
    "n_tensors": int,
    "tensor_types": about(by(int), "Number of tensors, by type."),
    **of(ModelFile, "unknown_types"),
    "metadata": about(by(object), 'Every key; a long array is `{"array_length": n}`.'),
    **sometimes({"tensors": about(many(TensorInfo), "With --tensors.")}),
}
_METHOD = struct(
    "Method",
    "A checkpoint as one method loads it.",
    {"quant": str},
    of(ModelFile, "bpw weight_bytes active_weight_bytes", maybe=True),
    _WHY,
)
_STORED = struct("Stored", "A tensor as it is stored.", of(Stored, "name shape"), {"type_name": str, "n_bytes": int})
_CHECKPOINT: Fields = {
    **{name: kind for name, kind in INSPECTED.items() if name not in ("gguf_version", "big_endian", "tensors")},
    "provenance": one(FoundCheckpoint, "origin"),
    "transformers_class": one(Config, "architecture"),
    "tied_embeddings": bool,
    **of(Config, "code_files"),
    "unused_bytes": about(int, "Of its files, what is not loaded."),
    "methods": many(_METHOD),
    **sometimes({"tensors": about(many(_STORED), "With --tensors.")}),
}
_FOLDER_ENTRY = struct(
    "Entry",
    "One GGUF of a folder, or the shards of one.",
    {"model": str, "quant": str | None},
    _FILES,
    _PROVENANCE,
    {"file_bytes": int, "n_shards": int, "n_missing": about(int, "Shards that are missing.")},
    of(ModelFile, f"missing_bytes {_HEADER}", maybe=True),
    _WHY,
)
_LOCAL = struct(
    "LocalModel",
    "A model on this disk.",
    of(LocalModel, "store name"),
    {"model": about(str | None, "The MODEL argument; null where there is no file.")},
    of(LocalModel, "quant"),
    {"words": one(LocalModel, "arguments")},
    _FILES,
    _PROVENANCE,
    of(LocalModel, "file_bytes n_missing architecture n_ctx_train"),
    _WHY,
)
_CATALOGED = struct(
    "CatalogModel",
    "A model of the catalog.",
    of(CatalogModel),
    {"n_params": int, "twins": about(many(str), "Quants whose twins are on this disk.")},
)
_REPO_FILE = struct("RepoFile", "A file of a repo.", of(RepoFile, "path n_bytes sha256"))
_VARIANT = struct(
    "Variant",
    "One quant of a repo.",
    {"model": one(RepoVariant, "name")},
    of(RepoVariant, "quant file_bytes"),
    {"repo_files": many(_REPO_FILE)},
    of(RepoVariant, "missing"),
    {
        "files": about(many(str), "Paths on this disk, where it is whole."),
        "here_bytes": about(int, "What of it is on this disk, unfinished downloads included."),
    },
)
_PULLED_FILE = struct(
    "PulledFile", "", {"path": str}, of(RepoFile, "n_bytes sha256"), of(FileProgress, "outcome moved_bytes")
)
_PULLED = struct(
    "Pulled",
    "A quant that was downloaded.",
    {"model": str, "quant": str | None, "commit": str, "file_bytes": int, "files": many(_PULLED_FILE)},
)
_TWIN = struct(
    "Twin",
    "A twin that was written.",
    {"model": str, "quant": str, "file": str, "provenance": Literal["twin"]},
    of(ModelFile, "file_bytes n_params bpw"),
)

_MACHINE: Fields = {
    **of(Budget, "device on_gpu memory_bytes memory_source reserve_bytes reserve_source"),
    "budget_bytes": one(Budget, "usable_bytes"),
    "bandwidth_bytes_per_s": one(Bandwidth, "bytes_per_s", maybe=True),
    "bandwidth_source": one(Bandwidth, "source", maybe=True),
}
_CHANGE = struct(
    "Change",
    "What would help where it does not fit.",
    {
        "change": one(Change, "kind"),
        "options": about(str | None, "As ggbench and llama.cpp name them: `-ctk q8_0 -ctv q8_0`."),
        "quant": about(str | None, "Of another quant its name."),
        "programs": about(many(Program), "What to close, the largest first."),
    },
    of(Change, "needed_bytes left_bytes fits planned_n_ctx tok_s"),
    {"costs": about(str, "What it takes in exchange.")},
)
_PLAN_ROW = struct(
    "Row",
    "What one quant needs; null is unknown, never zero.",
    of(PlanRow, without="changes"),
    {
        "fits_with": about(KvCacheTypes | None, "The largest cache with which it would fit at `n_ctx`."),
        "changes": about(many(_CHANGE), "What would help where it does not fit, the best first."),
        "file": about(str | None, "Path of the file or its first shard."),
    },
    of(PlanRow, "exceeds_training"),
    {"reason": about(str | None, "Why llama.cpp would not size it.")},
    sometimes(
        {
            "against": about(
                many(struct("PublishedSize", "A published size of it.", of(PublishedSize, without="row"), PUBLISHED)),
                "With --against published.",
            )
        }
    ),
)
_PLANNED: Fields = {
    "model": str,
    "machine": struct("Machine", "The memory to keep within.", {**_MACHINE, **of(Budget, "mmproj_bytes")}),
    "sources": about(by(str), "Where each kind of figure comes from."),
    **of(RepoListing, "repo commit", maybe=True),
    "listed_at": about(str | None, "When the repo was listed, UTC; null where it is listed now, or none is."),
    "moved_bytes": about(int | None, "Downloaded for this plan: headers alone."),
    **of(RepoListing, "total_bytes", maybe=True),
    "rows": many(_PLAN_ROW),
    "alternative": about(_PLAN_ROW | None, "A smaller quant that was not asked for, where none of the rows fits."),
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
    "checks": about(by(struct("NeedCheck", "", of(NeedCheck, without="need"))), "By the need: memory, speed, loss."),
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

_CURVES = (
    "By `rough`, where the output matrix is computed for every token of a prompt, and `exact`, for the last alone."
)
_REGIME = struct("Regime", "", {"bound": Literal["weights", "compute", "kv"], "first_n": int, "last_n": int})
_BOTH = struct("RoughAndExact", _CURVES, {"rough": float, "exact": float})
_PROMPT = struct(
    "Prompt",
    "The time that a prompt takes at least.",
    {"n_prompt": int, "read_ms": float, "compute_ms": _BOTH, "first_token_ms": _BOTH, "floor_ms": float},
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
        "knees": about(by(many(int) | None), f"Last prompt length before what bounds it changes. {_CURVES}"),
        "regimes": about(by(many(_REGIME) | None), f"What bounds a prompt, by its length. {_CURVES}"),
    },
    of(SchemeLimits, "decode"),
    {"prefill": about(many(_PROMPT) | None, "At powers of two, and at the longest.")},
)
_LIMITS: Fields = {
    "model": str,
    "convention": struct(
        "Convention",
        "What the prefixes of the figures mean.",
        {"name": Convention},
        of(Convention, "giga tera meaning"),
        {"kv_reads": about(KvReads, "How often a prompt's KV cache is read.")},
    ),
    "machine": struct(
        "Hardware",
        "",
        of(Hardware, "name memory_bytes"),
        {"memory_source": str | None},
        of(Hardware, "bandwidth_bytes_per_s"),
        {"bandwidth_source": str | None},
        of(Hardware, "compute_flop_per_s"),
        {"compute_source": str | None},
    ),
    "parameters": struct(
        "Parameters",
        "Counted by role.",
        of(Parameters, "layers layers_active lm_head active embedding total n_expert n_expert_used"),
    ),
    "kv": struct(
        "Kv",
        "The KV cache.",
        of(KvCache, "params_per_token bytes_per_token type_k type_v window"),
        {"windowed_bytes_per_token": int},
        of(KvCache, "state_bytes"),
        {"remark": str | None},
    ),
    **of(ModelFile, "n_ctx_train"),
    "rows": many(_SCHEME),
}


def documents() -> dict[str, Struct]:
    """Return the documents by the names in their `schema`."""
    rows_and_files = {"rows": many(_CATALOGED), "files": many(_LOCAL)}
    found: dict[str, tuple[str, Fields]] = {
        "inspect": ("What a GGUF's header says.", INSPECTED),
        "inspect.folder": ("Every GGUF in and below a folder.", {"rows": many(_FOLDER_ENTRY)}),
        "inspect.checkpoint": ("What a checkpoint of Transformers is.", _CHECKPOINT),
        "models": ("The catalog, and the files on this disk.", rows_and_files),
        "models.folder": ("The models in and below a folder.", {"rows": many(_LOCAL)}),
        "models.verify": (
            "A file compared with the SHA-256 in its name.",
            {"file": str, **of(VerifiedFile, "sha256_expected sha256_found matches")},
        ),
        "models.repo": (
            "A repo of the Hub at one commit.",
            {
                **of(RepoListing, "repo revision commit"),
                "listed_at": about(str | None, "When it was listed, UTC; null where that is now."),
                **of(RepoListing, "total_bytes n_other_files"),
                "rows": many(_VARIANT),
                "sidecars": many(_REPO_FILE),
            },
        ),
        "models.search": ("What the Hub's search finds.", {"search": str, "rows": many(RepoSummary)}),
        "pull": ("What was downloaded.", {"rows": many(_PULLED)}),
        "synth": ("The twins that were written.", {"rows": many(_TWIN)}),
        "plan": ("What each quant needs, before any download.", _PLANNED),
        "pick": ("The quant and the KV cache to run.", _PICKED),
        "limits": ("Theoretical limits of a model.", _LIMITS),
    }
    return {name: struct("Document", text, fields) for name, (text, fields) in found.items()}
