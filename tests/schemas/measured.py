"""Documents of what was measured: runs of every kind, and lists of them."""

from ggbench.decisions.pick.run_commands import RunCommands
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.memory import Memory
from ggbench.engines.server.config import EndpointConfig
from ggbench.engines.transformers.config import TransformersConfig
from ggbench.experiments.decode.record import DecodeResult
from ggbench.experiments.forecast.record import ForecastResult
from ggbench.experiments.maxctx.record import ContextResult, Probe, SearchPlan
from ggbench.experiments.quality.record import QualityResult, ScoredText
from ggbench.experiments.speed.record import BatchLine, CaseEnded, CaseMemory, SpeedCase, SpeedResult, SpeedSettings
from ggbench.experiments.tune.record import Gain, TunedCandidate, TuneResult, TuneSettings
from ggbench.machine.records import Imported, MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.runs import StoredRun
from ggbench.runs.summary import QuantSummary
from ggbench.stats.decode_timing import LatencySummary
from tests.schemas.published import NEAR
from tests.schemas.shapes import Fields, Struct, about, any_of, by, many, of, one, sometimes, struct

SETUPS = (LlamaConfig, EndpointConfig, TransformersConfig)
"""One for each engine."""
ENDS = tuple[float | None, float | None] | None
"""Of an interval of 95 %; an end of null is unbounded."""
NUMBER = float | None

CONFIG: Fields = {"config": about(any_of(*SETUPS), "How the model was loaded, by its engine's own names.")}
REASON: Fields = {"reason": about(str | None, "Why it did not complete, in one line; null where it did.")}
PROVENANCE: Fields = {"provenance": one(Subject, "source")}
HASH: Fields = {"header_sha256": about(str | None, "Of the GGUF's header; null where it is unknown.")}
TYPES: Fields = of(LlamaConfig, "type_k type_v", maybe=True)
MEASURED_FILE: Fields = {
    **of(Subject, "model quant file"),
    **PROVENANCE,
    **of(Subject, "file_bytes n_params bpw weight_bytes kv_bytes_per_token"),
}
ORIGIN: Fields = {
    **of(Run, "outcome"),
    **REASON,
    **CONFIG,
    **HASH,
    **of(RunHead, "environment command"),
    **of(Run, "run_id"),
}

QUANT: Fields = {
    **MEASURED_FILE,
    **of(Memory, "kv_bytes compute_bytes other_bytes peak_bytes buffers n_ctx n_batch n_ubatch"),
    **of(QuantSummary, "max_n_ctx max_n_ctx_verified"),
    "max_n_ctx_reason": about(str | None, "Why the search found none, or what its answer lacks, in one line."),
    "n_prompt": one(DecodeResult, "n_prompt", maybe=True),
    **of(QuantSummary, "n_gen repeat"),
    **of(DecodeResult, "prefill_ms", maybe=True),
    **of(QuantSummary, "prefills fit"),
    **of(LatencySummary, "p50_ms p95_ms p99_ms tok_s tok_s_ci95 sample_p50_ms", maybe=True),
    **of(QuantSummary, "expected limit"),
    **of(DecodeResult, "w_ratio b_ratio", maybe=True),
    **of(QuantSummary, "b_w16_ms"),
    "unsteady": about(str | None, "Why the decode should not be trusted; null where it was steady."),
    **of(QuantSummary, "serving gpu_use"),
    **of(Memory, "flash_attn swa_cells"),
    **ORIGIN,
}
"""A measured quant, by the names that every command uses."""

SAMPLES: Fields = sometimes(
    {
        "repeat": about(many(int) | QUANT["repeat"], "With --samples a list: the repetition of every timed token."),
        "position": about(many(int), "With --samples: the position n of every timed token."),
        "step_ns": about(many(int), "With --samples: how long every timed token took."),
        "sample_ns": about(many(int) | None, "With --samples: how long the sampler took; null where it was not timed."),
    }
)
AGAINST: Fields = sometimes({"against": about(many(NEAR), "With --against: the nearest published rows.")})

SEARCH: Fields = {
    **MEASURED_FILE,
    **of(Subject, "n_ctx_train"),
    **of(ContextResult, "max_n_ctx first_fail_n_ctx"),
    **of(SearchPlan, "planned_n_ctx is_planned_higher theory_n_ctx ceiling_n_ctx"),
    **of(ContextResult, "verified_by_decode"),
    **of(SearchPlan, "budget_bytes memory_bytes memory_source reserve_bytes reserve_source mmproj_bytes free_bytes"),
    "kv_bytes": about(int | None, "KV cache of the largest context."),
    "compute_bytes": about(int | None, "Compute buffers of the largest context."),
    **of(Memory, "peak_bytes other_bytes"),
    **of(SearchPlan, "gpu_processes"),
    **of(Memory, "buffers"),
    **TYPES,
    **of(Memory, "flash_attn swa_cells n_batch n_ubatch"),
    **of(ContextResult, "n_allocations seconds"),
    "probes": many(
        struct(
            "Probe",
            "One n_ctx that was tried.",
            of(Probe, without="reason device"),
            {
                "reason": str | None,
                "device": about(str | None, "Of another machine that ran out; null where none did."),
            },
        )
    ),
    **of(ContextResult, "warnings"),
    **ORIGIN,
}
del SEARCH["header_sha256"]  # type: ignore[attr-defined]

CASE: Fields = {
    "quant": str,
    "n_input": about(int, "Tokens of each sequence's prompt."),
    "n_batch": about(int, "Sequences that are generated at once."),
    "n_gen": about(int, "Tokens generated for each sequence."),
    **of(SpeedCase, "tok_s_qwen2_5 tok_s_qwen3 decode_tok_s prefill_tok_s ttft_ms"),
    **of(LatencySummary, "p50_ms p95_ms p99_ms", maybe=True),
    **of(SpeedCase, "token_ms gain prefill_ms decode_ms seconds"),
    "memory_bytes": about(int | None, "Weights, KV cache and compute buffers together."),
    **of(CaseMemory, "weight_bytes kv_bytes compute_bytes", maybe=True),
    **of(CaseEnded, "peak_bytes gpu_bytes outcome"),
    **REASON,
    **of(CaseEnded, "expected_s"),
    **of(SpeedCase, "exceeds_training requests"),
    **AGAINST,
}
CASES: Fields = {
    "cases": many(struct("Case", "One input length with one batch size.", CASE)),
    "lines": many(
        struct(
            "Line",
            "Latency against position of one batch size.",
            {"quant": str, "n_batch": about(int, "Sequences that are generated at once.")},
            of(BatchLine, "fit limit"),
            {
                "w_ratio": about(NUMBER, "Measured W over the limit's; 1.0 is the physical limit."),
                "b_ratio": about(NUMBER, "The limit's B over the measured; 1.0 is the physical limit."),
            },
        )
    ),
}
SPEED_RUN: Fields = {
    **MEASURED_FILE,
    **of(Subject, "n_ctx_train"),
    **of(SpeedSettings, "inputs n_gen batches within_s", maybe=True),
    **of(SpeedResult, "serving"),
    **of(Run, "gpu_use"),
    **of(Memory, "flash_attn swa_cells"),
    **ORIGIN,
}

BASE = struct("Base", "What was compared with.", of(Subject, "model quant file"), HASH, TYPES)
_ERROR = "Its standard error."
QUALITY: Fields = {
    **MEASURED_FILE,
    **TYPES,
    **of(QualityResult, "n_ctx n_chunks n_scored", maybe=True),
    "ppl": about(NUMBER, "Perplexity."),
    "ppl_error": about(NUMBER, _ERROR),
    "base": about(BASE | None, "Null without a base, and where it is a file of logits."),
    "base_ppl": about(NUMBER, "Perplexity of the base."),
    "base_ppl_error": about(NUMBER, _ERROR),
    "kld_mean": about(NUMBER, "Mean KL divergence from the base, in nats for each token."),
    "kld_error": about(NUMBER, _ERROR),
    "kld_percentiles": about(by(float) | None, "In nats, by the percentile, such as `99.9`."),
    "same_top": about(NUMBER, "Share of the positions where both have the same most likely token, 0 to 1."),
    "same_top_error": about(NUMBER, _ERROR),
    "dp_mean": about(NUMBER, "Mean difference of the probability of the right token."),
    "rms_dp": about(NUMBER, "Root mean square of that difference."),
    "rms_dp_error": about(NUMBER, _ERROR),
    "ln_ppl_ratio": about(NUMBER, "Natural logarithm of its perplexity over the base's."),
    "ln_ppl_ratio_error": about(NUMBER, _ERROR),
    "text": about(str | None, "Name of the text."),
    "text_source": about(str | None, "Its path, or where a text without one comes from."),
    "text_sha256": str | None,
    **of(ScoredText, "tokens_sha256", maybe=True),
    **of(QualityResult, "chunk_nll", maybe=True),
    **ORIGIN,
    **AGAINST,
}

GAIN = struct(
    "GainAtDepth",
    "Speed over that of the defaults, above 1 is faster; null where it is unknown.",
    {
        "ratio": about(NUMBER, "Of the decode, or of the prompt where no decode was asked for."),
        "ci95": ENDS,
        "prefill_ratio": NUMBER,
        "prefill_ci95": ENDS,
    },
    of(Gain, "step_ms batch_ms"),
)
TRIED = struct(
    "Candidate",
    "Settings that were tried, or not, as `state` says.",
    of(TunedCandidate, "number state"),
    {"settings": about(by(object), "What they change of the defaults, by llama.cpp's names.")},
    {"reason": about(str | None, "Why they were dropped, failed or left out.")},
    of(TunedCandidate, "n_timed"),
    {
        "ratio": about(NUMBER, "Speed over the defaults', over all depths and phases, as the race saw it."),
        "ci95": ENDS,
        "at": about(by(GAIN), "By depth."),
        "kld": about(NUMBER, "What the KV cache costs in quality, in nats for each token, where it was measured."),
        "kld_ci95": ENDS,
    },
)
TUNED: Fields = {
    **MEASURED_FILE,
    **of(TuneSettings, "depths within_s kv_types n_prompt", maybe=True),
    "for": one(TuneResult, "objective"),
    "best": about(by(object), "What to change of the defaults, by llama.cpp's names; empty where nothing beats them."),
    **of(TuneResult, "has_gain"),
    "ratio": about(NUMBER, "Speed of the finalist over the defaults', measured apart from the choice."),
    "ci95": ENDS,
    "gain": about(by(GAIN), "The same by depth."),
    **of(TuneResult, "finalist"),
    "candidates": many(TRIED),
    **of(TuneResult, "n_measured n_discarded noise"),
    "unsteady": about(str | None, "Why the machine was too noisy to decide; null where it was not."),
    "commands": about(
        struct(
            "TunedCommands", "Each runs the model with what was found.", {"ggbench": str},
            of(RunCommands, "llama_server llama_cli"), {"ollama": str | None},
        )
        | None,
        "Null where nothing was found.",
    ),
    **ORIGIN,
}  # fmt: skip

FORECAST: Fields = {
    **MEASURED_FILE,
    **of(Subject, "n_layer"),
    **TYPES,
    "b_ms": NUMBER,
    "b_ci95": ENDS,
    "w_tokens_per_ms": NUMBER,
    "w_ci95": ENDS,
    "tok_s": about(by(float), "Tokens per second of a decode, by position."),
    "tok_s_ci95": by(ENDS),
    "prefill_ms": about(by(float), "Time to read a prompt, by its length."),
    "prefill_ms_ci95": by(ENDS),
    "prefill_tok_s": by(float),
    "basis": about(str | None, "What the figures come from; null where nothing is known."),
    **of(ForecastResult, "limit"),
    **ORIGIN,
}

LISTED = struct(
    "ListedRun",
    "A stored run as a list shows it.",
    of(StoredRun, "run_id kind state started_at finished_at"),
    of(Subject, "model quant file"),
    PROVENANCE,
    of(StoredRun, "n_samples"),
    of(Subject, "bpw"),
    of(Memory, "n_ctx"),
    of(ContextResult, "max_n_ctx"),
    {"max_n_ctx_verified": about(bool | None, "Whether tokens were decoded at its far end.")},
    of(QuantSummary, "n_gen"),
    of(DecodeResult, "prefill_ms fit", maybe=True),
    of(LatencySummary, "tok_s tok_s_ci95", maybe=True),
    {"reason": about(str | None, "Why it did not complete, or cannot be read.")},
    {"imported": about(Imported | None, "Null of a run that was measured here.")},
    of(StoredRun, "command"),
)
IMPORTED_RUN = struct(
    "ImportedRun",
    "A run of a file, in the store.",
    {"run_id": int, "is_new": about(bool, "Whether it was not in the store before.")},
    of(RunHead, "kind"),
    of(Subject, "model quant"),
    of(Imported, "tool file file_sha256 content_sha256 lacks"),
)

SHOWN: Fields = {
    "readings": about(many(MachineReading), "The machine while it ran."),
    **of(StoredRun, "state started_at finished_at"),
}

_KINDS: dict[str, tuple[str, Fields]] = {
    "decode": ("A decode: latency of every token against its position.", {**QUANT, **SAMPLES, **AGAINST}),
    "prefill": ("Prompts of several lengths.", {**QUANT, **SAMPLES, **AGAINST}),
    "maxctx": ("A search for the largest context.", SEARCH),
    "quality": ("What a quant costs in quality.", QUALITY),
    "tune": ("A search for the settings that beat the defaults.", TUNED),
    "forecast": ("The speed that is expected of a model.", FORECAST),
}
_SHOWN: dict[str, tuple[str, Fields]] = {
    "show": ("A stored decode or prefill.", {**QUANT, **SAMPLES, **AGAINST}),
    "search": ("A stored search for the largest context.", SEARCH),
    "speed": ("A stored run by input length and batch size.", {**SPEED_RUN, **CASES}),
    "quality": ("A stored quality run.", QUALITY),
    "tune": ("A stored search for settings.", TUNED),
    "forecast": ("A stored forecast.", FORECAST),
}


SWEPT = ("maxctx", "quality", "forecast")
"""Kinds whose commands take several quants, and then print all runs in one document."""


def documents() -> dict[str, Struct]:
    """Return the documents by the names in their `schema`."""
    found = {kind: struct("Document", text, fields) for kind, (text, fields) in _KINDS.items()}
    for kind in SWEPT:
        rows = {"model": str, "rows": many(struct("Run", "One of them.", _KINDS[kind][1]))}
        found[f"{kind}.all"] = struct("Document", f"Several runs of {kind}, one for each quant.", rows)
    for name, (text, fields) in _SHOWN.items():
        found[f"results.{name}"] = struct("Document", text, fields, SAMPLES, SHOWN)
    rows_of_quants = {"rows": many(struct("Quant", "A measured quant.", QUANT, AGAINST))}
    asked = {"model": str, "n_gen": about(int, "Tokens decoded, as asked for.")}
    runs = {"runs": about(many(struct("Run", "A run without its cases.", SPEED_RUN)), "One for each quant.")}
    return found | {
        "bench": struct("Document", "The whole table of a model.", asked, rows_of_quants),
        "demo": struct("Document", "The table of the demo.", asked, rows_of_quants),
        "speed": struct(
            "Document", "Speed by input length and batch size, of all runs together.", {"model": str}, CASES, runs
        ),
        "results": struct("Document", "The stored runs, the most recent first.", {"rows": many(LISTED)}),
        "import": struct("Document", "The runs of the files, in their order.", {"rows": many(IMPORTED_RUN)}),
    }
