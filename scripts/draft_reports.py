"""Gains of drafts that others report beside what ggbench expects without them: `speculate_residuals --reports`.

A report is what one place says of one machine; while it is predicted, neither its acceptance nor its cost of a row
counts. With `--costs` the costs of a row are printed as `ggbench/expect/drafts.py` has them.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.drafts import (
    AcceptanceRow,
    DraftStep,
    least_costs,
    length_of_rows,
    load_acceptances,
    rows_like,
)
from ggbench.expect.published_speed import device_kind
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import plan_twin
from ggbench.machine.description import describe_machine
from ggbench.models.catalog import load_catalog
from ggbench.sizing.budget import described_budget
from ggbench.sizing.drafts import mtp_model
from ggbench.sizing.placement import Placement
from ggbench.stats.intervals import Estimate, t_95

N_CTX = 1024
"""About where the reported answers are: prompts of a line, answers of some hundred tokens."""
FEWEST_COSTS = 3
AIM_ERROR, AIM_WITHIN = 0.12, 17 / 20
QUANTS = {
    "UD-Q8_K_XL": "q8_0", "UD-Q6_K_XL": "q6_k", "UD-Q5_K_XL": "q5_k_m", "UD-Q4_K_XL": "q4_k_m", "UD-Q3_K_XL": "q3_k_m",
    "UD-Q2_K_XL": "q2_k", "Q4-XYZ-v2": "q4_k_s", "AD-IQ3_S": "iq3_s", "Q4_K_L": "q4_k_m",
}  # fmt: skip
"""Quants of llama.cpp about as large as a publisher's own."""
MEMORY = {
    "Apple M4": "m4-24gb", "Apple M4 Pro": "m4-pro-64gb", "Apple M3 Ultra": "m3-ultra-96gb",
    "AMD Radeon 890M": "radeon-890m-96gb",    "AMD Radeon RX 9060 XT": "rx-9060-xt-16gb",
    "NVIDIA GeForce RTX 5060 Ti": "rtx-5060-ti-16gb",
}  # fmt: skip
"""Devices that have several memories, by the one of the reports."""
UNKNOWN = ("NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU",)
"""Devices whose bandwidth is not in `known_devices.toml`."""


class Report(NamedTuple):
    """A reported gain, with the model and the machine that it is of."""

    row: AcceptanceRow
    place: str
    """Who reported which machine: what is left out together."""
    group: str
    """Generation and backend; `experts` of a mixture."""
    length: float | None
    """Tokens of a step: as stated, of a mixture else as expected, since none states them; None if unknown."""
    n_params: int
    least: float
    """Cost of reading what a step needs."""

    @property
    def row_cost(self) -> float | None:
        """What each further row of the batch cost; None if the tokens of a step are not stated."""
        gain, k = self.row.gain, self.row.n_draft
        return (self.length / gain - self.least) / k if self.length and gain and k else None


def main(*, prints_costs: bool) -> int:
    """Print a row for each report, and how many are within; 1 if that is fewer than the aim."""
    reports = list(find_reports(load_acceptances()))
    if prints_costs:
        _print_costs(_costs(reports))
    print("| machine | model | drafts | text | reported | expected | off by | within |")
    print("|---|---|---|---|---:|---:|---:|---|")
    errors, n_within, by_place = [], 0, dict[str, list[bool]]()
    for each in reports:
        expected = expect(each, reports)
        row, gain = each.row, each.row.gain or 0.0
        is_within = expected.low <= gain <= expected.high
        error = expected.value / gain - 1
        errors.append(abs(error))
        n_within += is_within
        by_place.setdefault(each.place, []).append(is_within)
        cells = (
            f"{row.device} {row.backend}", row.target, f"{row.kind} {row.n_draft}", row.task or "mixed",
            f"{gain:.2f}", f"{expected.value:.2f} ({expected.low:.2f}–{expected.high:.2f})", f"{error:+.0%}",
            "yes" if is_within else "no",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |")
    whole = sum(map(all, by_place.values()))
    print(
        f"\n{n_within} of {len(reports)} gains within their intervals, of {len(by_place)} machines; all of {whole}."
    )
    print(f"Median error {statistics.median(errors):.1%}, largest {max(errors):.0%}.")
    return 0 if n_within >= AIM_WITHIN * len(reports) and statistics.median(errors) <= AIM_ERROR else 1


def _print_costs(known: Sequence[tuple[str, float]]) -> None:
    """Print what is known of each generation with a backend, of each backend, and of all."""
    groups = {name for name, _ in known}
    for group in ("", *sorted(name.rpartition("/")[2] for name in groups), *sorted(groups)):
        cost = cost_of_rows(known, group)
        print(f'    "{group}": Estimate({cost.value:.2f}, {cost.low:.2f}, {cost.high:.2f}),')


def expect(report: Report, reports: Sequence[Report]) -> Estimate:
    """Return the gain that is expected without the report."""
    row = report.row
    k = row.n_draft or 1
    others = [each for each in load_acceptances() if (each.source, each.device) != (row.source, row.device)]
    length = length_of_rows(rows_like(others, row.kind, report.n_params, _task(row)), k)
    known = _costs(each for each in reports if each.place != report.place)
    cost = cost_of_rows(known, report.group)
    step = Estimate(*(report.least + k * each for each in (cost.value, cost.low, cost.high)))
    return DraftStep(k, step, {"": length}).gain("")


def _task(row: AcceptanceRow) -> str:
    """Return the kind of text that a forecast would be for."""
    if row.task.startswith("code"):
        return "code"
    return "chat" if row.task else ""


def _costs(reports: Iterable[Report]) -> list[tuple[str, float]]:
    return [(each.group, each.row_cost) for each in reports if each.row_cost is not None]


def cost_of_rows(known: Sequence[tuple[str, float]], group: str) -> Estimate:
    """Return what each further row of a small batch costs on a device, in times of a token.

    `known` are the costs of reports by generation and backend; those of the group count, else those of its backend,
    else all. The value is their median, the interval Student's for one more.
    """
    backend = group.rpartition("/")[2]
    choices = (
        [cost for name, cost in known if name == group],
        [cost for name, cost in known if name.rpartition("/")[2] == backend],
        [cost for _, cost in known],
    )
    costs = next(costs for costs in choices if len(costs) >= FEWEST_COSTS)
    half = t_95(len(costs) - 1) * statistics.stdev(costs) * math.sqrt(1 + 1 / len(costs))
    value = statistics.median(costs)
    return Estimate(value, max(0.0, value - half), value + half)


def find_reports(rows: Iterable[AcceptanceRow]) -> Iterable[Report]:
    """Yield the rows that state a gain, of models of the catalog with MTP layers or a draft of it."""
    files: dict[tuple[str, str], ModelFile] = {}
    for row in rows:
        if row.gain is None or row.n_draft is None or row.device in ("", *UNKNOWN):
            continue
        name, _, quant = row.target.partition(" ")
        draft_name, _, draft_quant = row.draft.partition(" ")
        for wanted in ((name, quant), (draft_name, draft_quant))[: 1 + (row.kind == "draft")]:
            if wanted not in files:
                files[wanted] = _file(*wanted, has_mtp=row.kind == "mtp")
        file = files[name, quant]
        machine = describe_machine((MEMORY.get(row.device, row.device),), None)
        budget = described_budget(machine, reserve_bytes=0)
        devices = tuple(replace(device, backend=row.backend) for device in budget.devices)
        setup = LlamaConfig(n_ctx=N_CTX)
        placement = Placement(file, setup, devices, budget.host)
        draft = files[draft_name, draft_quant] if row.kind == "draft" else mtp_model(file)
        [least] = least_costs(placement, draft, N_CTX, [row.n_draft], is_here=False)
        kind = device_kind(devices[0])
        group, length = f"{kind.generation}/{kind.backend}", row.length
        if file.n_expert:
            alike = rows_like(load_acceptances(), row.kind, file.n_params, _task(row))
            group, length = "experts", length or length_of_rows(alike, row.n_draft).value
        yield Report(row, f"{row.source} {row.device}", group, length, file.n_params, least)


def _file(name: str, quant: str, *, has_mtp: bool) -> ModelFile:
    """Return the header of a model of the catalog, with MTP layers if they draft."""
    id_ = re.sub(r"-coder|-instruct", "", name.lower())
    hyper = load_catalog().model(id_).hyper
    if has_mtp:
        hyper = replace(hyper, n_layer_nextn=1)
    quant = QUANTS.get(quant, quant.removeprefix("UD-")).lower()
    return plan_twin(hyper, [quant], name=id_)[quant]
