"""The records of a pick: the candidates (each quant with each KV cache), the one to run, and why.

Why, and what to mind, are records: a key of `ggbench/show/words.toml` and the candidate that it is said of.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ggbench.decisions.pick.needs import Concern, Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.drafts import DraftStep
from ggbench.expect.loss import NO_LOSS, added, cautious
from ggbench.models.targets import FileToRun
from ggbench.record import Record
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_curve import SessionTime

Need = Literal["memory", "speed", "loss"]
Label = Literal[
    "→ pick", "→ most capable", "nearest", "all on GPU", "dense", "mixture", "better", "faster", "more context",
    "dominated", "",
]  # fmt: skip


class NeedCheck(Record):
    """Whether a candidate meets one need."""

    need: Need
    wanted: float
    """Tokens of context, tok/s or nats."""
    value: float | None
    """The candidate's value; None if unknown."""
    is_met: bool | None
    """Null if unknown."""
    short_by: float = 0.0
    """The share by which a need is missed; for memory, of the budget."""


class Candidate(Record):
    """One quant with one KV cache in one place. None is unknown: neither good nor bad."""

    row: PlanRow
    """Plan for the context to run it with."""
    model_key: str
    selector: str = ""
    """The QUANT argument that selects it; empty if MODEL alone does."""
    max_n_ctx: int | None = None
    """The longest context of all slots that fits and llama-server uses, as `-c` takes it; 0 for none. If not listed to
    about 2 %, and with a part in main memory the context that was asked for.
    """
    probed_by: int | None = None
    """The run that found `max_n_ctx` by real allocations; None if planned."""
    speed: SessionTime | None = None
    """The time of the workload's session; disturbed runs do not count."""
    weights_loss: Expected | None = None
    cache_loss: Expected = NO_LOSS
    joint_loss: Expected | None = None
    """Loss of weights and cache, if measured together."""
    to_run: FileToRun | None = None
    """File to run; None if its header cannot be read."""
    is_mixture: bool = False
    """Whether each token uses only some of its experts."""
    host_bytes: int | None = None
    """Main memory that its tensors and cache take beside a GPU, if some of them could be on it; else None."""
    superseded_by: frozenset[str] = frozenset()
    """Keys of models that are run instead of its model today."""
    score: float = 0.0
    """Percent of GPQA Diamond that the model counts for among others; 0 if nobody knows."""
    score_source: str = ""
    """The publisher's card or report that has the score; empty if it is not the model's own."""
    checks: tuple[NeedCheck, ...] = ()
    """The check of each need."""

    @property
    def setup(self) -> LlamaConfig:
        """The setup that was planned: the context to run it with, its cache and its placement."""
        return self.row.setup or LlamaConfig()

    @property
    def n_ctx(self) -> int:
        """Context to run it with, of all slots: at most the training context in each."""
        return self.setup.n_ctx or 0

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
        return self.row.model, self.quant, *self.cache, self.options

    @property
    def options(self) -> str:
        return self.row.options

    @property
    def is_split(self) -> bool:
        """Whether some of it is in main memory although a GPU is used."""
        return self.host_bytes is not None

    @property
    def is_cache_quantized(self) -> bool:
        return not {"f32", "f16", "bf16"}.issuperset(self.cache)

    @property
    def meets(self) -> bool | None:
        """Whether it meets all needs; None if it misses none but some are unknown."""
        if self.missed:
            return False
        return None if self.unknown else True

    @property
    def missed(self) -> tuple[NeedCheck, ...]:
        return tuple(check for check in self.checks if check.is_met is False)

    @property
    def unknown(self) -> tuple[NeedCheck, ...]:
        return tuple(check for check in self.checks if check.is_met is None)


class Reason(Record):
    """A sentence on a candidate: why it is the pick or not, or what to mind of it."""

    key: str
    """Key of the template, e.g. `pick_against.noticed`."""
    about: Candidate


class Listed(NamedTuple):
    """A candidate with its advantage over the pick, or why it is listed."""

    label: Label
    candidate: Candidate


class Pick(Record):
    """The recommendation, and the candidates."""

    needs: Needs
    listed: tuple[Listed, ...]
    """The one to run, or the nearest if every candidate misses a need, and the alternatives. Empty without candidates.
    """
    rest: tuple[Listed, ...] = ()
    """All others, in the order of models, caches and quants."""
    comfortable: bool | None = None
    """Whether the recommendation's speed is comfortable; None if unknown."""
    concern: Concern = "little"
    """How much people notice of what it, or the nearest miss, loses."""
    why: tuple[Reason, ...] = ()
    """Why it is the pick, or what comes nearest; then what speaks against others."""
    mind: tuple[Reason, ...] = ()
    """What would change what a person does, the most important first."""
    instead: str = ""
    """Id of the current model to run where this one does not fit or is slow; empty for none."""
    twice: str = ""
    """Two of the described card that hold it where one does not, `rtx-3090x2`; empty for none."""
    drafting: tuple[DraftStep, int] | None = None
    """The best step with the MTP layers of the recommendation, and the bytes that they take; None if they do not
    certainly pay, or do not fit."""
    n_current: int = 0
    """Current models of the catalog that competed, most of them by theory alone; 0 if the models were named."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(each.candidate for each in (*self.listed, *self.rest))

    @property
    def best(self) -> Candidate | None:
        """The recommendation, or else the nearest miss."""
        return self.listed[0].candidate if self.listed else None

    @property
    def recommended(self) -> Candidate | None:
        """None if every candidate misses a need."""
        return None if self.best is None or self.best.missed else self.best

    @property
    def nearest_miss(self) -> Candidate | None:
        """The closest candidate, if nothing is recommended."""
        return None if self.recommended else self.best

    @property
    def n_models(self) -> int:
        """Number of different models."""
        return len({each.model_key for each in self.candidates})

    @property
    def has_rivals(self) -> bool:
        """Whether several models competed, if only by theory."""
        return max(self.n_models, self.n_current) > 1
