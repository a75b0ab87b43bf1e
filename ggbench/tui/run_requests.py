"""What the Library asks to be run: which experiment, with which settings, and how that differs from the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.errors import Unsupported
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.quality.record import N_CTX
from ggbench.runs.run import Settings
from ggbench.text import sanitize
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job


LENGTHS = (300, 1_000, 3_000, 10_000)
"""Tokens; the choices that a key cycles through."""
LARGEST, NO_BASE = "largest", "none"
"""Which base a quant is compared with, where it is not named."""


Found: TypeAlias = "Sequence[tuple[str, tuple[Target, ...]]]"
"""Models, each with the targets that were found for its quants."""


class ExperimentRequest(msgspec.Struct, frozen=True):
    """One experiment on each target. `notice` says how it differs from what was planned; empty where it does not."""

    kind: str
    """Of the experiment."""
    settings: Settings
    setup: LlamaConfig
    notice: str = ""

    def jobs(self, found: Found, hub: HubAccess, catalog: Catalog | None) -> tuple[Job, ...]:
        """Return one job for each target. Raises UsageError for a setup that does not hold the settings."""
        from ggbench.runs.experiment import Job, experiment_of

        experiment = experiment_of(self.kind)
        wanted = [target for _, targets in found for target in targets]
        return tuple(Job(experiment, target, target.setup(self.setup), self.settings) for target in wanted)


class QualityAsked(msgspec.Struct, frozen=True):
    """What a person chooses of a quality run."""

    base: str = LARGEST
    """`LARGEST`, `NO_BASE`, or the QUANT argument of the quant to compare with."""
    text: str = ""
    """`wikitext-2`, the path of a file, or empty for the text that comes with Python."""
    n_chunks: int | None = None
    """Chunks to score at most; None scores the whole text."""
    within_s: float | None = None
    """Seconds after which a quant's run ends; None sets no limit."""
    n_ctx: int = N_CTX
    """Tokens of a chunk."""


class QualityRequest(msgspec.Struct, frozen=True):
    """A quality run of each target, compared with a base of its model."""

    asked: QualityAsked
    setup: LlamaConfig
    """With the types of the KV cache; the n_ctx that was planned is not that of a chunk."""
    here: Mapping[str, tuple[str, ...]]
    """QUANT arguments of the quants on this disk, by model, as far as they are known."""
    notice: str = ""

    def jobs(self, found: Found, hub: HubAccess, catalog: Catalog | None) -> tuple[Job, ...]:
        """Read the text, find the bases, and return a job for each target that is not its own base.

        Raises UsageError and BadFile for a text that cannot be scored, NetworkError for one that cannot be downloaded,
        Unsupported for a twin, and as `resolve`.
        """
        from ggbench.experiments.quality.measure import EXPERIMENT, largest_here, quality_jobs
        from ggbench.experiments.quality.record import QualitySettings
        from ggbench.experiments.quality.texts import WIKITEXT_2, find_text
        from ggbench.models.reference import parse_model
        from ggbench.models.targets import resolve
        from ggbench.paths import expand_path
        from ggbench.runs.experiment import Base

        asked, setup = self.asked, replace(self.setup, n_ctx=None)
        for _, targets in found:
            for target in targets:
                if target.served is not None:
                    EXPERIMENT.refuse_servers()
                if target.provenance == "twin":
                    raise no_quality(f"{target.model} {target.quant}")
        is_name = asked.text in ("", WIKITEXT_2)
        source, _ = find_text(asked.text or None if is_name else expand_path(asked.text), hub)
        n_seqs = max(1, setup.n_batch // asked.n_ctx)
        settings = QualitySettings(source, asked.n_ctx, asked.n_chunks, asked.within_s, n_seqs)
        jobs: list[Job] = []
        for model, targets in found:
            base = None
            if asked.base == LARGEST:
                known = resolve(parse_model(model, *self.here.get(model, ())), hub=hub, catalog=catalog)
                base = largest_here([*targets, *(each for each in known if each.provenance != "twin")])
            elif asked.base != NO_BASE:
                base = Base(resolve(parse_model(model, asked.base), hub=hub, catalog=catalog)[0])
            jobs += quality_jobs(
                targets,
                setup,
                settings,
                base,
                ((setup.type_k, setup.type_v),),
                is_base_named=asked.base != LARGEST,
            )
        return tuple(jobs)


RunRequest: TypeAlias = ExperimentRequest | QualityRequest
"""What is to be carried out on any number of targets; call its `jobs` in a thread."""


def no_quality(name: str) -> Unsupported:
    """Return the error for a twin."""
    return Unsupported(
        f"{sanitize(name)} is a twin: weights without training have no quality",
        "press Q on the quants of a published file",
    )


def next_length(n_gen: int) -> int:
    """Return the next longer choice; after the longest, the shortest."""
    return next((length for length in LENGTHS if length > n_gen), LENGTHS[0])


def decode_request(setup: LlamaConfig, n_gen: int) -> ExperimentRequest:
    """Return a decode of `n_gen` tokens, with the planned n_ctx of the setup if they fit in it, else just enough."""
    settings = DecodeSettings(n_gen)
    needed, planned = whole_steps(settings.n_ctx_needed), setup.n_ctx
    if planned is None or planned >= needed:
        return ExperimentRequest("decode", settings, setup)
    notice = f"{format_count(n_gen)} tokens need n_ctx {format_count(needed)}; {format_count(planned)} was planned"
    return ExperimentRequest("decode", settings, replace(setup, n_ctx=None), notice)
