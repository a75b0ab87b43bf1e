"""Speculative decoding of a model and its draft: the settings, what is recorded, and the result."""

from __future__ import annotations

from typing import Annotated

from ggbench.engines.events import Continued
from ggbench.engines.llama.defaults import DRAFT_TOKENS
from ggbench.errors import UsageError
from ggbench.fields import DEPTH_LIST, DURATION, TOKEN_LIST, FieldKind, Option
from ggbench.models.subject import Subject
from ggbench.record import Record
from ggbench.runs.run import Result, Run, Settings, require_positive
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import MeasuredStep, StepTimes, acceptance_of

N_DRAFTED = (1, 2, 3, 4, 6, 8, 16)
WITHIN_S = 120.0
FEWEST_ROUNDS = 3
"""Rounds that are measured however long they take: fewer give no interval worth printing."""
MOST_ROUNDS = 5
"""Rounds over all steps, so that a slowdown of the machine affects all of them."""
_MOST_DRAFTED = 64
"""The longest drafts that llama-server makes by default, those of `--spec-type ngram-mod`."""
N_CTX_TEXTS = 1024
"""Tokens of the longest text with its prompt."""


class SpeculateSettings(Settings, Record):
    """The steps to time. Raises UsageError for impossible numbers."""

    n_drafted: Annotated[
        tuple[int, ...],
        Option(
            "-k --spec-draft-n-max",
            "Tokens to draft in a step, e.g. 3,8. "
            f"Default: {','.join(map(str, N_DRAFTED))}; with a server, its own, {DRAFT_TOKENS}.",
            TOKEN_LIST,
        ),
    ] = ()
    """Empty for `N_DRAFTED`, or a server's default."""
    depths: Annotated[
        tuple[int, ...],
        Option(
            "-d --n-depth",
            "Measure with N tokens in the cache, e.g. 0,4k; those beyond the training context are left out.",
            DEPTH_LIST,
        ),
    ] = (0, 4096)
    within_s: Annotated[
        float,
        Option("--within", "Time for measuring, e.g. 5m; at least three rounds are measured.", DURATION),
    ] = WITHIN_S
    spec_type: Annotated[
        str,
        Option(
            "--spec-type",
            "How llama-server drafts, e.g. ngram-simple. With --engine. Default: by the draft's file.",
            FieldKind(str, metavar="TYPE"),
            shown="",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if not self.depths:
            raise UsageError("there is nothing to measure", "use at least one depth")
        for each in self.timed_k:
            require_positive("the number of drafted tokens", each)
        if self.most_drafted > _MOST_DRAFTED:
            what = f"{self.most_drafted} drafted tokens are more than any draft gains from"
            raise UsageError(what, f"use at most {_MOST_DRAFTED}")

    @property
    def timed_k(self) -> tuple[int, ...]:
        """Each k whose parts are timed."""
        return self.n_drafted or N_DRAFTED

    @property
    def most_drafted(self) -> int:
        return max(self.timed_k)

    @property
    def n_served(self) -> int | None:
        """Tokens that a server drafts at most; None for its default. Raises UsageError for several numbers."""
        if len(self.n_drafted) > 1:
            raise UsageError(
                "a server is measured with one number of drafted tokens", f"-k {self.n_drafted[0]}"
            )
        return self.n_drafted[0] if self.n_drafted else None

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of the deepest step, or of a text."""
        return max(max(self.depths) + self.most_drafted + 2, N_CTX_TEXTS)


class SpeculateRequest(SpeculateSettings):
    """The options of a run: the draft is found before it starts."""

    draft: Annotated[
        str,
        Option(
            "-md --draft",
            kind=FieldKind(metavar="MODEL[:QUANT]|FILE"),
            shown="",
            is_always_stated=True,
            help="The draft model.",
        ),
    ] = ""

    @property
    def settings(self) -> SpeculateSettings:
        return SpeculateSettings(**{name: getattr(self, name) for name in SpeculateSettings.__struct_fields__})


class DraftedPair(Record):
    """The measured pair; recorded before the first step."""

    draft: Subject | None
    """None for drafts without a file, such as n-grams."""
    spec_type: str = ""
    """Type of a server's drafts; empty if steps are timed."""


class SpeculationRound(Record):
    """Median times of one round at one depth."""

    round: int
    n_depth: int
    steps: tuple[StepTimes, ...]
    """One for each k."""


class AnsweredText(Record):
    """A text that was continued, without drafts or with."""

    name: str
    """Kind of text, a key of `TEXTS`."""
    round: int
    k: int | None
    """Maximum drafted tokens of a step; None for the server's default, or a type without this limit."""
    is_drafted: bool
    answer: Continued

    @property
    def tok_s(self) -> float:
        """Return the speed of all tokens but the first, which comes with the prompt."""
        return (self.answer.n_tokens - 1) / self.answer.decode_ns * 1e9


class DraftedText(Record):
    """A kind of text at temperature 0, generated without and with the draft in turn."""

    name: str
    """`prose`, `code`, `tool call` or `summary`."""
    k: int | None
    """None for a server's default, or drafts by n-grams."""
    n_tokens: int
    """Tokens generated in each round."""
    plain_tok_s: float
    drafted_tok_s: float
    gain: Estimate
    """The second over the first, with its 95 % interval."""
    mean_len: float
    """Mean tokens of a step, the model's own included."""
    accepted_share: float | None = None
    """Accepted tokens / drafted tokens; None without drafts."""


class SpeculationCase(Record):
    """Steps of one k at one depth."""

    n_depth: int
    step: MeasuredStep

    @property
    def k(self) -> int:
        """Tokens drafted in a step."""
        return self.step.times.k

    @property
    def needed_acceptance(self) -> float | None:
        """The acceptance above which it pays; None if not even full acceptance is enough."""
        return acceptance_of(self.step.break_even.value, self.k)


class SpeculateResult(Result, Record):
    """Costs of speculative decoding at each depth, and what must be accepted for it to pay."""

    no_one_memory = "measured with a draft model"

    pair: DraftedPair
    cases: tuple[SpeculationCase, ...] = ()
    """Ordered by depth, then by k."""
    texts: tuple[DraftedText, ...] = ()
    """Empty for a twin, which has no text to accept."""

    @property
    def least(self) -> tuple[SpeculationCase, ...]:
        """The cases at the least depth, the fewest drafted tokens first."""
        return tuple(each for each in self.cases if each.n_depth == self.cases[0].n_depth)


def result_of(run: Run) -> SpeculateResult | None:
    return run.result_as(SpeculateResult)
