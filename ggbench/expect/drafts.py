"""What drafts are expected to gain before they are measured: how many a model accepts, and what a step then costs.

A step drafts k tokens and verifies them in one batch. It yields L tokens and takes C times as long as a token without
drafts, so the gain is L / C. L is what others published, by kind of draft and of text. C is reading the weights once,
of a mixture those of the experts that the batch uses, drafting k times, and computing k more rows of a batch, which
each backend does at a cost of its own: `scripts/speculate_residuals --reports` finds it, and leaves out each report.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ggbench.expect.cost_model import CPU
from ggbench.expect.published_speed import device_kind, published_curve
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.published import data_text, reads_data
from ggbench.models.published.selection import size_octaves
from ggbench.record import Record
from ggbench.sizing.drafts import mtp_model
from ggbench.sizing.placement import Placement
from ggbench.stats.intervals import Estimate, ratio_interval, t_95
from ggbench.stats.speculation import acceptance_of, mean_len

_FEWEST = 5
"""Rows that a narrower choice must leave."""
_NEAR_OCTAVES = 1.0
"""Models from half to twice the size are near."""
TASKS: Mapping[str, tuple[str, ...]] = {
    "code": ("code", "coding", "HumanEval"),
    "chat": ("chat", "prose", "question", "explanation", "writing", "short story", "MT-bench", "Alpaca"),
}
"""Kinds of text that a forecast is for, with how the tasks of published rows begin."""
TOUCHED = 0.68
"""The power of a batch's tokens that is the number of tokens which, choosing independently, use as many experts.

The batch is of one text, so its tokens agree: `scripts/touched_experts` counts 1.55 times those of one token for 2,
2.45 for 4 and 3.8 to 4.3 for 9, of 60 and of 128 experts; this has 1.6, 2.5 and 4.0.
"""
MOST_K = 8
_NEARLY = 0.9
"""Share of the largest product of gains for code and chat that fewer drafted tokens are worth: each takes memory."""


class AcceptanceRow(Record):
    """A published acceptance of drafts, what they gained, or both; None or empty means not stated."""

    kind: str
    """`draft` (a smaller model), `mtp`, `eagle` (EAGLE, EAGLE-2 and EAGLE-3), `dflash`, `medusa` or `ngram`."""
    target: str
    source: str
    """Address."""
    size: str = ""
    """Printed size of the target: `27B`, `30B-A3B`."""
    draft: str = ""
    task: str = ""
    n_draft: int | None = None
    """Drafted tokens of a step, at most."""
    mean_len: float | None = None
    """Tokens of a step, one of the target's own included."""
    share: float | None = None
    """Accepted of all drafted tokens, those after the first rejected one included."""
    temperature: float | None = None
    device: str = ""
    date: str = ""
    printed: str = ""
    remark: str = ""
    backend: str = ""
    """llama.cpp's, if the speeds are of it."""
    plain_tok_s: float | None = None
    """Speed without drafts on the same machine."""
    drafted_tok_s: float | None = None

    @property
    def length(self) -> float | None:
        """Tokens of a step, as stated or by the share."""
        if self.mean_len or self.n_draft is None or self.share is None:
            return self.mean_len
        return 1 + self.n_draft * self.share

    @property
    def acceptance(self) -> float | None:
        """The acceptance of a token after those before it that gives such steps; None if their most is unknown."""
        if self.n_draft is None or self.length is None:
            return None
        return acceptance_of(self.length, self.n_draft)

    @property
    def gain(self) -> float | None:
        """The speed with drafts over that without."""
        return self.drafted_tok_s / self.plain_tok_s if self.drafted_tok_s and self.plain_tok_s else None


@reads_data
def load_acceptances() -> tuple[AcceptanceRow, ...]:
    lines = csv.DictReader(data_text("acceptance.csv", "ggbench.expect").splitlines())
    stated = [{column: cell for column, cell in line.items() if cell} for line in lines]
    return tuple(msgspec.convert(stated, list[AcceptanceRow], strict=False))


_KINDS = {"draft-simple": "draft", "draft-mtp": "mtp", "draft-eagle3": "eagle", "draft-dflash": "dflash"}
"""Kinds of the table by llama-server's --spec-type; those that begin with `ngram` are one."""


def kind_of(spec_type: str) -> str:
    """Return the kind of drafts of a --spec-type; of none, a draft model's."""
    return "ngram" if spec_type.startswith("ngram") else _KINDS.get(spec_type, "draft")


def rows_like(
    rows: Iterable[AcceptanceRow], kind: str, n_params: int | None = None, task: str = ""
) -> list[AcceptanceRow]:
    """Return the rows that tell an acceptance, of the kind, then of the task, then of targets of half to twice the
    size, as far as five are left; of a kind with fewer, those of all kinds. How many tokens are drafted hardly matters.

    A task is a key of `TASKS`, or how rows begin.
    """
    found = [row for row in rows if row.acceptance is not None]
    for is_alike in (
        lambda row: row.kind == kind,
        lambda row: row.task.startswith(TASKS.get(task, task)),
        lambda row: size_octaves(row.size, n_params) <= _NEAR_OCTAVES,
    ):
        narrower = [row for row in found if is_alike(row)]
        found = narrower if len(narrower) >= _FEWEST else found
    return found


def expected_acceptance(kind: str) -> Estimate:
    """Return the acceptance of a drafted token after those before it: the median of such rows, and their range."""
    return acceptance_of_rows(rows_like(load_acceptances(), kind))


def acceptance_of_rows(rows: Iterable[AcceptanceRow]) -> Estimate:
    """Return the median of rows that tell an acceptance, and their range."""
    shares = _acceptances(rows)
    return Estimate(statistics.median(shares), min(shares), max(shares))


def _acceptances(rows: Iterable[AcceptanceRow]) -> list[float]:
    return [row.acceptance for row in rows if row.acceptance is not None]


def length_of_rows(rows: Iterable[AcceptanceRow], k: int) -> Estimate:
    """Return the mean tokens of a step that drafts k at the median acceptance of at least two rows.

    The interval is Student's for one more row, of the logarithm, within what a step can yield.
    """
    shares = _acceptances(rows)
    value = mean_len(statistics.median(shares), k)
    logs = [math.log(mean_len(share, k)) for share in shares]
    factor = math.exp(t_95(len(logs) - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs)))
    return Estimate(value, max(1.0, value / factor), min(k + 1.0, value * factor))


class DraftStep(Record):
    """A step that drafts k tokens, as it is expected."""

    k: int
    cost: Estimate
    """Its time, in those of a token without drafts: it pays if it yields more tokens."""
    lengths: dict[str, Estimate]
    """Mean tokens that it yields, by kind of text."""

    def gain(self, task: str) -> Estimate:
        """Return the speed over that without drafts."""
        length, cost = self.lengths[task], self.cost
        ends = ratio_interval(length.value, (length.low, length.high), cost.value, (cost.low, cost.high))
        return Estimate(length.value / cost.value, *ends)

    @property
    def pays(self) -> bool:
        """Whether some kind of text is certainly faster."""
        return any(self.gain(task).low > 1 for task in self.lengths)

    @property
    def verdict(self) -> Literal["pays", "slows", "open"]:
        """Whether some kind of text is certainly faster, or probably none."""
        if self.pays:
            return "pays"
        return "slows" if all(self.gain(task).value < 1 for task in self.lengths) else "open"


def draft_steps(
    placement: Placement, draft: ModelFile | None, n: int, *, is_here: bool, ks: Sequence[int] = ()
) -> list[DraftStep]:
    """Return the steps of each k at position n with a draft model, or without one the model's own MTP layers.

    Empty if a speed is unknown. `ks` is 1 to 8 by default.
    """
    file, kind, ks = placement.file, "draft" if draft else "mtp", ks or range(1, MOST_K + 1)
    alike = {task: rows_like(load_acceptances(), kind, file.n_params, task) for task in TASKS}
    if all(rows == alike["code"] for rows in alike.values()):
        alike = {"any text": alike["code"]}
    costs = least_costs(placement, draft or mtp_model(file), n, ks, is_here=is_here)
    row = row_cost(placement)
    return [
        DraftStep(
            k,
            Estimate(least, least, least).plus(row, k),
            {task: length_of_rows(of_task, k) for task, of_task in alike.items()},
        )
        for k, least in zip(ks, costs, strict=False)
    ]


def best_step(steps: Sequence[DraftStep]) -> DraftStep:
    """Return the step with the fewest tokens that gains nearly the most over all kinds of text."""
    gains = [math.prod(step.gain(task).value for task in step.lengths) for step in steps]
    return next(step for step, gain in zip(steps, gains, strict=True) if gain >= _NEARLY * max(gains))


def least_costs(
    placement: Placement, draft: ModelFile, n: int, ks: Sequence[int], *, is_here: bool
) -> list[float]:
    """Return for each k the time in which a step reads what it needs, in that of a token without drafts; empty if it is
    unknown.
    """
    drafting = Placement(draft, placement.setup.undrafted().for_draft(), placement.devices, placement.host)
    batches = [(drafting, 1.0), *((placement, (k + 1) ** TOUCHED) for k in (0, *ks))]
    curves = [published_curve(placed, is_here=is_here, n_tokens=n_tokens) for placed, n_tokens in batches]
    known = [curve.step_ms_at(n).value for curve in curves if curve is not None]
    if len(known) < len(curves):
        return []
    drafted_ms, token_ms, *verified_ms = known
    return [(ms + k * drafted_ms) / token_ms for k, ms in zip(ks, verified_ms, strict=True)]


_EXPERTS = "experts"
"""Key of the cost of a mixture's rows, wherever it runs."""
_ROW_COSTS: Mapping[str, Estimate] = {
    "": Estimate(0.12, 0.00, 0.51),
    "CPU": Estimate(0.48, 0.00, 1.26),
    "CUDA": Estimate(0.11, 0.00, 0.29),
    "Metal": Estimate(0.71, 0.24, 1.19),
    "ROCm": Estimate(0.12, 0.00, 0.35),
    "Vulkan": Estimate(0.10, 0.00, 0.22),
    "Volta/CUDA": Estimate(0.31, 0.26, 0.37),
    "Ampere/CUDA": Estimate(0.21, 0.00, 0.42),
    "Blackwell/CUDA": Estimate(0.10, 0.04, 0.15),
    "M3/Metal": Estimate(0.72, 0.46, 0.98),
    "RDNA 3/Vulkan": Estimate(0.06, 0.00, 0.15),
    "RDNA 3.5/Vulkan": Estimate(0.10, 0.01, 0.19),
    "RDNA 4/Vulkan": Estimate(0.15, 0.00, 0.40),
    _EXPERTS: Estimate(0.35, 0.00, 1.55),
}
"""What each further row of a small batch costs, in times of a token: of all devices, by backend, and by generation.

Medians of reports, with Student's interval for one more, by `scripts/speculate_residuals --reports --costs`: the tokens
of a step over the gain, less what it reads, for each drafted token. That of a CPU is of the machine in
`scripts/EVIDENCE.md`.
"""


def row_cost(placement: Placement) -> Estimate:
    """Return what each further row of a small batch costs on a placement's first device."""
    kind = device_kind(placement.devices[0]) if placement.devices else CPU
    keys = (f"{kind.generation}/{kind.backend}", kind.backend, "")
    if placement.file.n_expert:
        return _ROW_COSTS[_EXPERTS]
    return next(_ROW_COSTS[key] for key in keys if key in _ROW_COSTS)
