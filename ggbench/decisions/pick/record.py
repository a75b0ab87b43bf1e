"""The records of a pick: the candidates (each quant with each KV cache), the one to run, and why.

Why, and what to mind, are records: a key of `ggbench/show/words.toml` and the candidate that it is said of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.needs import Concern, Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.loss import NO_LOSS, added, cautious
from ggbench.fields import joined
from ggbench.models.targets import FileToRun
from ggbench.sizing.plan_record import Change, DeviceMemory, PlanRow
from ggbench.stats.intervals import Estimate, Expected

Need = Literal["memory", "speed", "loss"]
Label = Literal["all on GPU", "dense", "mixture", "better", "faster", "more context"]


class TurnSpeed(msgspec.Struct, frozen=True):
    """The speed of the workload's turn."""

    tok_s: Expected
    """Speed of the answer."""
    turn_s: Estimate | None
    """Seconds for prompt and answer; None if prompt speed is unknown."""


def placement_options(setup: LlamaConfig) -> tuple[str, ...]:
    """Return llama.cpp's options that leave out GPUs or keep a part of the model in main memory: `-ncmoe 24`."""
    found = [f"-dev {joined(setup.devices)}"] if setup.devices else []
    if setup.n_cpu_moe:
        found.append(f"-ncmoe {setup.n_cpu_moe}")
    if setup.n_gpu_layers >= 0:
        found.append(f"-ngl {setup.n_gpu_layers}")
    return tuple(found)


class Candidate(msgspec.Struct, frozen=True):
    """One quant with one KV cache in one place. None is unknown: neither good nor bad."""

    row: PlanRow
    """Plan for the required context."""
    model_key: str
    selector: str
    """The QUANT argument that selects it; empty if MODEL alone does."""
    n_ctx: int
    """Context to run it with, in tokens: at most the training context in each slot."""
    max_n_ctx: int | None
    """The longest context that fits; 0 for none. For a candidate that is not listed, to about 2 %."""
    offered_n_ctx: int | None
    """The part of `max_n_ctx` that llama-server uses, at most the training context in each slot; for a workload
    without a depth, the longest part of that with a fast enough answer.
    """
    probed_by: int | None = None
    """The run that found `max_n_ctx` by real allocations; None if planned."""
    speed: TurnSpeed | None = None
    """Not from disturbed runs."""
    weights_loss: Expected | None = None
    cache_loss: Expected = NO_LOSS
    joint_loss: Expected | None = None
    """Loss of weights and cache, if measured together."""
    to_run: FileToRun | None = None
    """File to run; None if its header cannot be read."""
    setup: LlamaConfig = LlamaConfig()
    """The setup that was planned: the required n_ctx, its cache and its placement."""
    is_mixture: bool = False
    """Whether each token uses only some of its experts."""
    host_bytes: int | None = None
    """Main memory that its tensors and cache take beside a GPU, if some of them could be on it; else None."""
    superseded_by: frozenset[str] = frozenset()
    """Keys of models that are run instead of its model today."""

    @property
    def fits(self) -> bool | None:
        """Whether its context fits, by real allocations if a run searched them, else as planned."""
        if self.probed_by is None or self.row.n_ctx is None:
            return self.row.fits
        return (self.max_n_ctx or 0) >= self.row.n_ctx

    @property
    def left_bytes(self) -> int | None:
        """Bytes left of the budget as planned; None if real allocations contradict the plan."""
        return self.row.left_bytes if self.fits is self.row.fits else None

    @property
    def n_params(self) -> int:
        """Parameters of the model; 0 if unknown."""
        return self.row.n_params or 0

    @property
    def quant(self) -> str:
        """The QUANT argument."""
        return self.selector or self.row.quant

    @property
    def cache(self) -> tuple[str, str]:
        """Types of K and V."""
        return self.row.type_k, self.row.type_v

    @property
    def loss(self) -> Expected | None:
        """Loss of weights and cache in nats; None if that of the weights is unknown."""
        return self.joint_loss or added(self.weights_loss, self.cache_loss)

    @property
    def tok_s(self) -> Expected | None:
        """Tokens/s of one user with a full slot of `n_ctx`; None if unknown."""
        return self.row.expected

    @property
    def longest_n_ctx(self) -> int | None:
        """The longest context that fits and llama-server uses: at most the training context in each slot."""
        return self.max_n_ctx and self.row.used_of(self.max_n_ctx)

    @property
    def cautious_loss(self) -> float:
        """What it loses at most in four of five cases [nats]; nothing of unknown weights.

        Of weights and cache, whose errors are independent, the one that may exceed its median by more does.
        """
        if self.joint_loss is not None:
            return cautious(self.joint_loss)
        parts = [each for each in (self.weights_loss, self.cache_loss) if each is not None]
        excess = max(cautious(each) - each.value for each in parts)
        return sum(each.value for each in parts) + excess

    @property
    def download_bytes(self) -> int | None:
        """Bytes to download before it can be run; None if no published file is known."""
        if self.to_run is None or self.to_run.is_here:
            return 0
        return self.row.file_bytes if self.to_run.repo else None

    @property
    def name(self) -> tuple[str, ...]:
        """Unique among the candidates of a pick, and the final tie-breaker."""
        return self.row.model, self.quant, *self.cache, *self.options

    @property
    def options(self) -> tuple[str, ...]:
        """llama.cpp's options of its placement and of flash attention that differ from the defaults."""
        flash_attn = self.setup.flash_attn
        return (*placement_options(self.setup), *([f"-fa {flash_attn}"] if flash_attn != "auto" else []))

    @property
    def is_split(self) -> bool:
        """Whether some of it is in main memory although a GPU is used."""
        return self.host_bytes is not None

    @property
    def is_cache_quantized(self) -> bool:
        return not {"f32", "f16", "bf16"}.issuperset(self.cache)


class NeedCheck(msgspec.Struct, frozen=True):
    """Whether a candidate meets one need."""

    need: Need
    wanted: float
    """Tokens of context, tok/s or nats."""
    value: float | None
    """The candidate's value; None if unknown."""
    is_met: bool | None
    """Null if unknown."""
    is_close: bool = False
    """Whether the value's interval includes the limit."""
    short_by: float | None = None
    """The missing share of a missed need; for memory, of the budget."""
    missing_bytes: int = 0
    """Missing bytes, if the context does not fit."""
    of_main_memory: bool = False
    """Whether they are missing from main memory beside GPUs."""
    refusal: str = ""
    """Why llama.cpp refused to size the context; empty if it did not."""


class Checked(msgspec.Struct, frozen=True):
    """A candidate and the check of each need."""

    candidate: Candidate
    checks: tuple[NeedCheck, ...]

    @property
    def meets(self) -> bool | None:
        """Whether it meets all needs; None if it misses none but some are unknown."""
        met = [check.is_met for check in self.checks]
        if False in met:
            return False
        return None if None in met else True

    @property
    def missed(self) -> tuple[NeedCheck, ...]:
        return tuple(check for check in self.checks if check.is_met is False)

    @property
    def unknown(self) -> tuple[NeedCheck, ...]:
        return tuple(check for check in self.checks if check.is_met is None)

    @property
    def close(self) -> tuple[NeedCheck, ...]:
        return tuple(check for check in self.checks if check.is_close)


class Reason(msgspec.Struct, frozen=True):
    """A sentence on a candidate: why it is the pick or not, or what to mind of it."""

    key: str
    """Key of the template, e.g. `pick_against.noticed`."""
    about: Checked


class Listed(NamedTuple):
    """A candidate with its advantage over the pick, or why it is listed."""

    label: str
    checked: Checked

    @property
    def candidate(self) -> Candidate:
        return self.checked.candidate


class PublishedScore(msgspec.Struct, frozen=True):
    """What a model's publisher reports of it."""

    model: str
    value: float
    """Percent of GPQA Diamond."""
    source: str
    """The model card or report."""


class Pick(msgspec.Struct, frozen=True):
    """The recommendation, and the candidates."""

    needs: Needs
    checked: tuple[Checked, ...]
    """All candidates, in the order of models, caches and quants."""
    front: tuple[Candidate, ...]
    """Candidates that no other dominates."""
    recommended: Checked | None
    """None if every candidate misses a need."""
    alternatives: tuple[Listed, ...] = ()
    """Each labelled by a `Label`."""
    nearest_miss: Checked | None = None
    """The closest candidate, if nothing is recommended."""
    comfortable: bool | None = None
    """Whether the recommendation's speed is comfortable; None if unknown."""
    concern: Concern = "little"
    """How much people notice of what it, or the nearest miss, loses."""
    why: tuple[Reason, ...] = ()
    """Why it is the pick, or what comes nearest; then what speaks against others."""
    mind: tuple[Reason, ...] = ()
    """What would change what a person does, the most important first."""
    main_memory: DeviceMemory | None = None
    """Main memory beside the GPUs that it is planned for; None without GPUs."""
    changes: tuple[Change, ...] = ()
    """Changes that would make the nearest miss fit, best first; empty if it fits."""
    instead: str = ""
    """Id of the current model to run where this one does not fit or is slow; empty for none."""
    n_current: int = 0
    """Current models of the catalog that competed, most of them by theory alone; 0 if the models were named."""
    scores: tuple[PublishedScore, ...] = ()
    """What publishers report of the models that are listed, if the current ones competed."""

    @property
    def best(self) -> Checked | None:
        """The recommendation, or else the nearest miss."""
        return self.recommended or self.nearest_miss

    @property
    def n_models(self) -> int:
        """Number of different models."""
        return len({each.candidate.model_key for each in self.checked})

    @property
    def has_rivals(self) -> bool:
        """Whether several models competed, if only by theory."""
        return self.n_models > 1 or self.n_current > 1

    def with_sized(self, sized: Mapping[tuple[str, ...], Checked]) -> Pick:
        """Return the pick with some candidates sized more exactly, by name."""

        def new(checked: Checked) -> Checked:
            return sized.get(checked.candidate.name, checked)

        return replace(
            self,
            checked=tuple(map(new, self.checked)),
            front=tuple(sized[each.name].candidate if each.name in sized else each for each in self.front),
            recommended=self.recommended and new(self.recommended),
            alternatives=tuple(each._replace(checked=new(each.checked)) for each in self.alternatives),
            nearest_miss=self.nearest_miss and new(self.nearest_miss),
            why=tuple(replace(each, about=new(each.about)) for each in self.why),
            mind=tuple(replace(each, about=new(each.about)) for each in self.mind),
        )

    @property
    def pick_label(self) -> str:
        """What the recommendation is in the table."""
        by_capability = self.n_current and self.needs.prefer in ("balanced", "quality")
        return "→ most capable" if by_capability else "→ pick"

    @property
    def misses_speed_alone(self) -> bool:
        """Whether nothing is recommended, and the nearest miss misses no need but the speed."""
        return self.nearest_miss is not None and {check.need for check in self.nearest_miss.missed} == {"speed"}

    @property
    def listed(self) -> tuple[Listed, ...]:
        """The pick or the nearest miss, and the alternatives."""
        if self.best is None:
            return self.alternatives
        label = self.pick_label if self.recommended else "nearest"
        return Listed(label, self.best), *self.alternatives

    @property
    def unlisted(self) -> tuple[Listed, ...]:
        """All others, labelled if dominated."""
        listed, front = {each.candidate.name for each in self.listed}, {each.name for each in self.front}
        others = (each for each in self.checked if each.candidate.name not in listed)
        return tuple(Listed("" if each.candidate.name in front else "dominated", each) for each in others)
