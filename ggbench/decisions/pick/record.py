"""A pick: what is needed, what each quant would give with each KV cache, and which of them to run."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from ggbench.engines.llama.config import LARGEST_N_CTX, whole_steps
from ggbench.errors import UsageError
from ggbench.models.targets import FileToRun
from ggbench.sizing.change import Change
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Expected
from ggbench.stats.known_speed import SpeedBasis

Preference = Literal["quality", "speed", "context"]
LossBasis = Literal["measured", "published typical", "unquantized"]
Need = Literal["memory", "speed", "loss"]
Label = Literal["better", "faster", "more context"]

LITTLE_LOSS = 0.05
"""Nats that count as a little loss where no `max_loss` is given."""


class Workload(msgspec.Struct, frozen=True):
    """A turn: a prompt that is read after some context, and the answer to it."""

    name: str
    n_prompt: int
    n_gen: int
    n_depth: int | None
    """Tokens in the KV cache before the prompt; None: as many as the context holds beside prompt and answer."""
    n_ctx_least: int = 0
    """Tokens that the context should hold where nothing else is asked for."""
    min_tok_s: float | None = None
    """Speed of the answer that the workload asks for by itself."""
    prefer: Preference = "quality"

    @property
    def n_turn(self) -> int:
        """Tokens of prompt and answer."""
        return self.n_prompt + self.n_gen

    @property
    def n_ctx_of_turn(self) -> int:
        """The smallest context that holds the turn, in whole steps of llama.cpp's padding."""
        return whole_steps((self.n_depth or 0) + self.n_turn)

    def depth_in(self, n_ctx: int) -> int:
        """Tokens before the prompt in a context of this length."""
        return max(0, n_ctx - self.n_turn) if self.n_depth is None else self.n_depth


WORKLOADS = {
    each.name: each
    for each in (
        Workload("chat", 512, 300, 4096, 8192),
        Workload("agent", 16384, 800, 49152, 131072),
        Workload("documents", 30720, 500, 0, 32768),
        Workload("longest", 512, 300, None, min_tok_s=15.0, prefer="context"),
    )
}


class Needs(msgspec.Struct, frozen=True):
    """What a person asks for. Raises UsageError for numbers that nothing can meet."""

    workload: Workload = WORKLOADS["chat"]
    given_n_ctx: int | None = None
    given_tok_s: float | None = None
    max_loss: float | None = None
    """Nats that weights and cache may lose together."""
    given_prefer: Preference | None = None

    def __post_init__(self) -> None:
        if self.given_n_ctx is not None and not 0 < self.given_n_ctx <= LARGEST_N_CTX:
            raise UsageError(f"no context holds {self.given_n_ctx:,} tokens", f"give 1 to {LARGEST_N_CTX:,}")
        if self.given_tok_s is not None and not 0 < self.given_tok_s < math.inf:
            raise UsageError(
                f"the needed speed of {self.given_tok_s:g} tok/s is not above zero", "give tokens/s, e.g. 15"
            )
        if self.max_loss is not None and not 0 <= self.max_loss < math.inf:
            raise UsageError(
                f"the largest loss of {self.max_loss:g} nats is not a number from 0", "give 0 or more, e.g. 0.05"
            )

    @property
    def n_ctx(self) -> int:
        """Tokens that the context has to hold, in whole steps of llama.cpp's padding."""
        wanted = self.workload.n_ctx_least if self.given_n_ctx is None else self.given_n_ctx
        return max(whole_steps(wanted), self.workload.n_ctx_of_turn)

    @property
    def tok_s(self) -> float | None:
        """Speed of the answer that is needed; None for any."""
        return self.workload.min_tok_s if self.given_tok_s is None else self.given_tok_s

    @property
    def little_loss(self) -> float:
        """Nats up to which a loss counts as little."""
        return LITTLE_LOSS if self.max_loss is None else self.max_loss

    @property
    def prefer(self) -> Preference:
        """What decides among those that meet the needs."""
        return self.given_prefer or self.workload.prefer


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
    changes: tuple[Change, ...] = ()
    """What would make the nearest miss fit, the best first; empty where it fits."""

    @property
    def n_models(self) -> int:
        """Models among the candidates, whose qualities do not compare."""
        return len({each.candidate.model_key for each in self.checked})
