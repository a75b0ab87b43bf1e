"""A pick: what is needed, what each quant would give with each KV cache, and which of them to run."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ggbench.decisions.pick.needs import Needs
from ggbench.models.targets import FileToRun
from ggbench.sizing.plan_record import Change, PlanRow
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import SpeedBasis

LossBasis = Literal["measured", "published typical", "unquantized"]
Need = Literal["memory", "speed", "loss"]
Label = Literal["better", "faster", "more context"]


class PublishedLoss(msgspec.Struct, frozen=True):
    """What a quant of a published model loses."""

    of: str
    """The model and the importance matrix that the quant was made with: two of the same compare."""
    nats: float
    error: float
    """Standard error; 0 where none is printed."""


class Loss(msgspec.Struct, frozen=True):
    """What is lost in quality: mean KL divergence in nats for each token, with where the figure comes from."""

    nats: Expected
    """Measured: mean and 95 % interval. Typical: median and range over models."""
    basis: LossBasis
    source: str
    """For people: `run 12, from q8_0`, `q4_k_m of llama-3-8b`."""
    published: tuple[PublishedLoss, ...] = ()
    """Of a typical loss, what it is taken from."""


class TurnSpeed(msgspec.Struct, frozen=True):
    """How fast the turn of the workload is. Of a `bound` the best that is possible."""

    tok_s: Expected
    """Of the answer."""
    turn_s: Expected | None
    """Of prompt and answer; None where nothing is known of prompts."""
    basis: SpeedBasis
    source: str

    @property
    def is_bound(self) -> bool:
        """Whether it can prove only that a need is missed."""
        return self.basis == "bound"


class Candidate(msgspec.Struct, frozen=True):
    """One quant with one KV cache. None is unknown: neither good nor bad."""

    row: PlanRow
    """What it needs, sized for the context needed."""
    model_key: str
    """Equal for quants of one model: only their losses compare."""
    selector: str
    """QUANT argument that selects it; empty where MODEL alone does."""
    n_ctx: int
    """Tokens of the context that it would be run with."""
    max_n_ctx: int | None
    """The longest context that fits; 0 for none."""
    offered_n_ctx: int | None
    """The same; of a workload without a depth the longest in which the answer is fast enough."""
    probed_by: int | None = None
    """The run that found `max_n_ctx` by real allocations; None where it is planned."""
    speed: TurnSpeed | None = None
    weights_loss: Loss | None = None
    cache_loss: Loss | None = None
    joint_loss: Loss | None = None
    """Of both together, where that was measured at once."""
    to_run: FileToRun | None = None
    """Its file; None where the header cannot be read."""

    @property
    def cache(self) -> tuple[str, str]:
        """Types of K and V."""
        return self.row.type_k, self.row.type_v

    @property
    def loss(self) -> Expected | None:
        """Nats that weights and cache lose; None where either is unknown.

        Where they were measured apart they are added, as to second order the divergences of two independent small
        disturbances do: of SmolLM2 135M over the same text q4_k_m loses 0.0590, a q4_0 cache of q4_1 0.0573, and q4_k_m
        with a q4_0 cache 0.1145.
        """
        if self.joint_loss is not None:
            return self.joint_loss.nats
        if self.weights_loss is None or self.cache_loss is None:
            return None
        one, other = self.weights_loss.nats, self.cache_loss.nats
        return Expected(one.value + other.value, one.low + other.low, one.high + other.high)

    @property
    def download_bytes(self) -> int | None:
        """Bytes to download before it can be run; None where no published file is known."""
        if self.to_run is None or self.to_run.is_here:
            return 0
        return self.row.file_bytes if self.to_run.repo else None

    @property
    def least_loss(self) -> Expected | None:
        """As `loss`; where only one of its parts is known, that part, as the other cannot be less than nothing."""
        known = [each.nats for each in (self.weights_loss, self.cache_loss) if each is not None]
        return self.loss or (max(known, key=lambda each: each.value) if known else None)

    @property
    def name(self) -> tuple[str, str, str, str]:
        """Unique among the candidates of a pick, and their last order."""
        return self.row.model, self.selector or self.row.quant, *self.cache


class NeedCheck(msgspec.Struct, frozen=True):
    """Whether a candidate meets one need."""

    need: Need
    wanted: float
    """Tokens of context, tok/s or nats."""
    value: float | None
    """What it has; None where that is unknown."""
    is_met: bool | None
    """By the value. None where it is unknown, and where a bound on speed does not rule it out."""
    is_close: bool = False
    """Whether the interval of the value reaches to the other side."""
    short_by: float | None = None
    """Share of what is wanted that is missing, of a need that is missed; of memory, share of the budget."""
    is_bound: bool = False
    """Whether the value is the best that is possible."""
    missing_bytes: int = 0
    """Of memory, where the context does not fit."""
    refusal: str = ""
    """Why llama.cpp refused to size the context, as it says it; empty where it did not."""


class Checked(msgspec.Struct, frozen=True):
    """A candidate beside the needs."""

    candidate: Candidate
    checks: tuple[NeedCheck, ...]

    @property
    def meets(self) -> bool | None:
        """Whether it meets all needs; None where it misses none, but some are unknown."""
        met = [check.is_met for check in self.checks]
        return False if False in met else None if None in met else True

    @property
    def missed(self) -> tuple[NeedCheck, ...]:
        """The needs that it misses."""
        return tuple(check for check in self.checks if check.is_met is False)

    @property
    def unknown(self) -> tuple[NeedCheck, ...]:
        """The needs of which it is unknown whether it meets them."""
        return tuple(check for check in self.checks if check.is_met is None)


BestIn = Literal[
    "loss", "speed among the least loss", "bits", "speed", "loss among the fastest", "context", "parameters"
]
"""What the recommendation is the best in; `bits` per weight decide where no loss is known."""
NotKnown = Literal["cache loss", "weights loss", "speed", "speed but for its bound"]


class IsBest(msgspec.Struct, frozen=True):
    """The recommendation would come first without any needs, too."""

    candidate: Candidate
    best_in: BestIn


class NeedsDecide(msgspec.Struct, frozen=True):
    """Another would come first, but misses needs, or may miss them."""

    recommended: Candidate
    first: Checked


class NextLarger(msgspec.Struct, frozen=True):
    """What the next larger quant would change; None of a figure that is not known of both."""

    checked: Checked
    nats: tuple[float, float] | None
    """That its weights lose, and those of the recommendation."""
    speed_ratio: float | None
    """Its tokens/s over those of the recommendation."""


class Unknowns(msgspec.Struct, frozen=True):
    """What is not known of the recommendation, and which needs it therefore may miss."""

    candidate: Candidate
    figures: tuple[NotKnown, ...]
    needs: tuple[NeedCheck, ...]


class BeyondTraining(msgspec.Struct, frozen=True):
    """The context is longer than those that the model was trained with."""

    n_ctx_train: int


class NeedsAreClose(msgspec.Struct, frozen=True):
    """Intervals of the recommendation reach beyond what is needed."""

    needs: tuple[NeedCheck, ...]


class ModelsDoNotCompare(msgspec.Struct, frozen=True):
    """The quality of different models does not compare."""


class NothingToChoose(msgspec.Struct, frozen=True):
    """No candidate could be sized; `refusal` is of the nearest, empty where there is no candidate."""

    refusal: str = ""


class NearestMisses(msgspec.Struct, frozen=True):
    """Every candidate misses a need; this one by least."""

    checked: Checked


class WhatSpeedsUp(msgspec.Struct, frozen=True):
    """What would help where speed alone is missed."""

    bandwidth_ratio: float | None
    """How many times the bandwidth it takes; None where settings may help, too."""


Reason: TypeAlias = (
    IsBest
    | NeedsDecide
    | NextLarger
    | Unknowns
    | BeyondTraining
    | NeedsAreClose
    | ModelsDoNotCompare
    | NothingToChoose
    | NearestMisses
    | WhatSpeedsUp
)
"""Why a pick is what it is: said with the decision, and only put into words afterwards."""


class Alternative(msgspec.Struct, frozen=True):
    """What to run instead, and what it is better in."""

    label: Label
    checked: Checked


class Pick(msgspec.Struct, frozen=True):
    """The recommendation, and what it was chosen from."""

    needs: Needs
    checked: tuple[Checked, ...]
    """All candidates, in the order of models, caches and quants."""
    front: tuple[Candidate, ...]
    """Those that no other dominates."""
    recommended: Checked | None
    """None where every candidate misses a need."""
    alternatives: tuple[Alternative, ...] = ()
    next_larger: Checked | None = None
    """The same cache with the next larger quant of the same model."""
    without_needs: Checked | None = None
    """What would be recommended if nothing was needed."""
    nearest_miss: Checked | None = None
    """Where nothing is recommended, what misses the needs by least."""
    reasons: tuple[Reason, ...] = ()
    """Why, in the order in which they are said."""
    changes: tuple[Change, ...] = ()
    """What would make the nearest miss fit, the best first; empty where it fits."""

    @property
    def n_models(self) -> int:
        """Models among the candidates, whose qualities do not compare."""
        return len({each.candidate.model_key for each in self.checked})

    @property
    def listed(self) -> tuple[tuple[str, Checked], ...]:
        """What a short table shows, each once: the pick, alternatives, the next larger quant, the nearest miss."""
        named: list[tuple[str, Checked | None]] = [
            ("→ pick", self.recommended),
            *((each.label, each.checked) for each in self.alternatives),
            ("next larger", self.next_larger),
            ("no needs", self.without_needs),
            ("nearest miss", self.nearest_miss),
        ]
        found: dict[tuple[str, ...], tuple[str, Checked]] = {}
        for label, checked in named:
            if checked is not None:
                found.setdefault(checked.candidate.name, (label, checked))
        return tuple(found.values())

    @property
    def unlisted(self) -> tuple[tuple[str, Checked], ...]:
        """All others, labelled where another dominates them."""
        listed, front = {each.candidate.name for _, each in self.listed}, {each.name for each in self.front}
        others = (each for each in self.checked if each.candidate.name not in listed)
        return tuple(("" if each.candidate.name in front else "dominated", each) for each in others)
