"""Quality: perplexity of a text and, given a base, the KL divergence of a quant or a KV cache type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.engines.contract import Score
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.quality.record import (
    N_CTX,
    NO_BASE,
    ChunkScores,
    QualityRequest,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
)
from ggbench.gguf_file.quants import name_without_quant
from ggbench.models.reference import ModelRef, parse_model
from ggbench.models.targets import Target, resolve, resolve_one
from ggbench.runs.experiment import Conclusion, Experiment, Job, MeasuredLoss
from ggbench.runs.recording import Recording
from ggbench.runs.session import Base
from ggbench.text import sanitize
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.engines.contract import EngineConfig
    from ggbench.hub.access import HubAccess
    from ggbench.runs.progress import Measuring
    from ggbench.runs.run import Run, Settings
    from ggbench.runs.session import Session


class QualityExperiment(Experiment):
    """Tokenize the text once, then score a few chunks at a time."""

    kind = "quality"
    settings_type = QualitySettings
    result_type = QualityResult
    needs = (Score,)
    observed = (ScoredText, ScoredBase, ChunkScores)
    needs_trained = "untrained weights have no quality"
    measures_speed = False

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Raises Unsupported for a twin, BadFile or UsageError for an unusable text."""
        from ggbench.experiments.quality.scoring import score_text

        return (yield from score_text(session))

    def reduce(self, recording: Recording) -> QualityResult:
        from ggbench.experiments.quality.scores import chunk_means, divergence, floats, perplexity

        settings, scores = recording.settings(QualitySettings), recording.of(ChunkScores)
        nll, base_nll, kld, p_diff = (
            floats(b"".join(getattr(each, name) for each in scores))
            for name in ("nll", "base_nll", "kld", "p_diff")
        )
        per_chunk = settings.n_scored_per_chunk
        same_top = tuple(count / per_chunk for each in scores for count in each.same_top)
        is_compared = len(kld) == len(nll) == per_chunk * len(same_top) > 0
        return QualityResult(
            text=settings.text,
            n_ctx=settings.n_ctx,
            scored=recording.last(ScoredText),
            n_chunks=len(nll) // per_chunk,
            n_scored=len(nll),
            ppl=perplexity(nll, per_chunk) if len(nll) else None,
            chunk_nll=chunk_means(nll, per_chunk),
            base=recording.last(ScoredBase),
            divergence=divergence(nll, base_nll, kld, p_diff, same_top) if is_compared else None,
        )

    @property
    def request_type(self) -> type[QualityRequest]:
        return QualityRequest

    def jobs(
        self, request: Settings, ref: ModelRef, targets: Sequence[Target], setup: EngineConfig, hub: HubAccess
    ) -> list[Job]:
        """Raises UsageError or BadFile if the text cannot be scored."""
        assert isinstance(request, QualityRequest)
        config = LlamaConfig.of(setup)
        settings = settings_of(request, config)
        super().jobs(settings, ref, targets, config, hub)
        bases = find_bases(ref, request.base, targets, hub)
        return quality_jobs(targets, config, settings, bases, is_base_named=request.base is not None)

    def loss_of(self, run: Run) -> MeasuredLoss | None:
        found, types = run.result, run.setup.cache_types
        if (
            not isinstance(found, QualityResult)
            or found.divergence is None
            or found.scored is None
            or types is None
        ):
            return None
        if found.base is None or not found.base.subject.header_sha256:
            return None
        of, text = found.base.subject, (found.scored.tokens_sha256, found.n_ctx)
        base_cache = found.base.type_k, found.base.type_v
        return MeasuredLoss(types, of.header_sha256, of.quant, base_cache, text, found.divergence.kld)

    def stated(self, job: Job) -> dict[str, object]:
        settings = job.settings
        assert isinstance(settings, QualitySettings)
        base = None if job.base is None else job.base.target
        asked = {
            "text": settings.text.path or None,
            "n-ctx": None if settings.n_ctx == N_CTX else settings.n_ctx,
            **super().stated(job),
            "base": NO_BASE if base is None else base.words[-1],
        }
        return {name: value for name, value in asked.items() if value is not None}


EXPERIMENT = QualityExperiment()


def settings_of(request: QualityRequest, setup: LlamaConfig) -> QualitySettings:
    """Find the text of a request. Raises like `find_text`."""
    from ggbench.experiments.quality.texts import find_text
    from ggbench.paths import expand_path

    source, _ = find_text(None if request.text is None else expand_path(request.text))
    return QualitySettings(source, request.n_ctx, request.n_chunks, max(1, setup.n_batch // request.n_ctx))


def find_bases(
    ref: ModelRef, quant: str | None, targets: Sequence[Target], hub: HubAccess
) -> list[Base | None]:
    """Return the base of each target: the named quant or file, or if none is named, its model's largest file on this
    disk.

    None without such a file, or if the name is `none`. Raises UsageError for a named base of another model.
    """
    if quant == NO_BASE:
        return [None] * len(targets)
    if quant is not None:
        base = resolve_one(parse_model(quant) if Path(quant).is_file() else ref.of_quants(quant), hub=hub)
        for target in targets:
            _require_same_model(base, target)
        return [Base(base)] * len(targets)
    others = resolve(ref.of_quants(), hub=hub) if ref.quants else ()
    found = [*targets, *(each for each in others if each.provenance != "twin")]
    return [
        largest_here([each for each in found if _model_key(each) == _model_key(target)]) for target in targets
    ]


def largest_here(targets: Iterable[Target]) -> Base | None:
    here = [target for target in targets if target.path is not None]
    return Base(max(here, key=lambda target: target.file_bytes or 0)) if here else None


def _model_key(target: Target) -> object:
    """Return a key that is equal for files of one model; a repo is one model."""
    file = target.file
    if file is None:
        return "" if target.published is not None else target.path
    name = file.metadata.get("general.name") or name_without_quant(
        target.path.name if target.path else file.name
    )
    return file.architecture, file.n_layer, file.n_embd, file.n_vocab, str(name)


def _require_same_model(base: Target, target: Target) -> None:
    """Raise UsageError if the headers, as far as they were read, are of different architectures or vocabularies."""
    from ggbench.show.names import quant_name

    if base.file is None or target.file is None:
        return
    own, its, reason = target.file, base.file, ""
    if own.architecture != its.architecture:
        reason = f"its architecture is {sanitize(its.architecture)}, not {sanitize(own.architecture)}"
    elif own.n_vocab != its.n_vocab:
        reason = f"its vocabulary has {format_count(its.n_vocab)} tokens, not {format_count(own.n_vocab)}"
    if reason:
        raise UsageError(
            f"{quant_name(base.subject)} cannot be the base of {quant_name(target.subject)}: {reason}",
            "--base needs a quant of the same model; without it, each model's largest file here is its base",
        )


def quality_jobs(
    targets: Sequence[Target],
    setup: LlamaConfig,
    settings: QualitySettings,
    bases: Sequence[Base | None],
    *,
    is_base_named: bool = True,
) -> list[Job]:
    """Return a job for each quant.

    A base is a job only if no other is compared with it, as those include its results. Unless a base was given, a
    quantized cache is compared with the f16 cache of the same quant, to separate its loss from the quant's.
    """
    rows, cache = [], (setup.type_k, setup.type_v)
    for target, base in zip(targets, bases, strict=True):
        own = base
        if base is not None and not is_base_named and cache != (base.type_k, base.type_v):
            own = replace(base, target=target)
        is_base = own is not None and (target, cache) == (own.target, (own.type_k, own.type_v))
        rows.append(Job(EXPERIMENT, target, setup, settings, None if is_base else own))
    used = [row.base.target for row in rows if row.base is not None]
    return [row for row in rows if row.base is not None or row.target not in used]
