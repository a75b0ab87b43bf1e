"""What drafts are expected to gain before they are measured: what others published, and what a step reads."""

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.drafts import (
    DraftStep,
    acceptance_of_rows,
    best_step,
    draft_steps,
    expected_acceptance,
    least_costs,
    load_acceptances,
    rows_like,
)
from ggbench.gguf_file.layout import build_model
from ggbench.machine.known_devices import recognize_device
from ggbench.sizing.drafts import mtp_model
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import DeviceMemory
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Estimate
from ggbench.stats.speculation import acceptance_of
from tests.conftest import DRAFTING, TINY


def test_a_draft_model_has_the_acceptance_by_which_k_was_always_chosen() -> None:
    found = expected_acceptance("draft")
    assert found.value == pytest.approx(0.77, abs=0.005)
    assert found.low == pytest.approx(acceptance_of(1.57, 8), rel=1e-6) and found.high < 0.9


def test_kinds_differ_and_one_with_few_rows_gets_those_of_all() -> None:
    mtp, eagle, few, unheard = (expected_acceptance(kind) for kind in ("mtp", "eagle", "medusa", "telepathy"))
    assert eagle.value < mtp.value
    assert few == unheard
    assert few.low <= min(mtp.low, eagle.low) and few.high >= max(mtp.high, eagle.high)


def test_the_task_and_the_size_narrow_the_rows_as_far_as_enough_are_left() -> None:
    def median(kind: str, n_params: int | None = None, task: str = "") -> float:
        return acceptance_of_rows(rows_like(load_acceptances(), kind, n_params, task)).value

    assert median("mtp", task="sonnets") == median("mtp"), "none is of sonnets"
    assert median("mtp", task="code") > median("mtp") > median("mtp", task="chat")
    assert median("eagle", 70_000_000_000) > median("eagle", 8_000_000_000)


def test_a_share_of_drafted_tokens_is_less_than_the_acceptance_of_one_after_accepted_ones() -> None:
    """After the first rejected token of a step, the others count as rejected."""
    rows = [row for row in load_acceptances() if row.share is not None and row.n_draft != 1]
    assert len(rows) > 20
    assert all(row.acceptance is not None and row.acceptance > row.share for row in rows if row.share)


def test_every_acceptance_names_its_place_and_kind() -> None:
    rows = load_acceptances()
    assert {row.kind for row in rows} == {"draft", "mtp", "eagle", "dflash", "medusa", "ngram"}
    assert all(row.source.startswith("https://") for row in rows)
    assert all(row.length or row.gain for row in rows)


CARD = DeviceMemory(
    "CUDA0", 24 << 30, name="NVIDIA GeForce RTX 3090", backend="CUDA", bandwidth=Bandwidth(936e9, "given")
)


def _steps(**changed: object) -> list[DraftStep]:
    file = build_model(replace(DRAFTING, **changed), "drafting")
    placement = Placement(file, LlamaConfig(n_ctx=4096), (CARD,))
    return draft_steps(placement, None, 4096, is_here=False)


def test_the_gain_is_the_tokens_of_a_step_over_its_time() -> None:
    steps = _steps()
    assert [each.k for each in steps] == [*range(1, 9)]
    for each in steps:
        assert each.cost.low <= each.cost.value <= each.cost.high
        assert each.gain("code").value == pytest.approx(each.lengths["code"].value / each.cost.value)
        assert 1 <= each.lengths["chat"].value < each.lengths["code"].value <= each.k + 1
        assert each.gain("code").low < each.gain("code").value < each.gain("code").high
    most = max(steps, key=lambda each: each.gain("code").value * each.gain("chat").value)
    assert best_step(steps).k <= most.k and best_step([most]) is most, "fewer tokens take less memory"


def test_a_mixture_verifies_with_the_experts_of_its_batch() -> None:
    """So its step costs more of a token than a dense model's, and still less than tokens one after the other."""
    experts = replace(TINY, architecture="qwen3moe", n_expert=32, n_expert_used=2, n_ff_expert=512)
    dense, mixture = (build_model(each, "m") for each in (TINY, experts))
    setup = LlamaConfig(n_ctx=4096)
    alone, costs = (
        [least_costs(Placement(each, setup, (CARD,)), dense, 4096, [k], is_here=False)[0] for each in (dense, mixture)]
        for k in (0, 3)
    )
    assert alone == pytest.approx([1, 1])
    assert costs[0] == pytest.approx(4), "it drafts for itself, thrice, and reads its weights once to verify"
    own = least_costs(Placement(mixture, setup, (CARD,)), mixture, 4096, (1, 3), is_here=False)
    assert 2 < own[0] < 3 and 4 < own[1] < 7


def test_mtp_layers_are_a_model_of_their_own_with_the_output() -> None:
    file = build_model(DRAFTING, "drafting")
    own = mtp_model(file)
    assert (own.n_layer, own.n_layer_nextn, len(own.states)) == (1, 0, 1)
    names = {tensor.name for tensor in own.tensors}
    assert "blk.0.nextn.eh_proj.weight" in names and not any(name.startswith("blk.1.") for name in names)
    assert {name for name in names if not name.startswith("blk.")} == {
        tensor.name for tensor in file.tensors if not tensor.name.startswith("blk.")
    }


def test_reports_of_gains_are_of_known_devices_and_plausible() -> None:
    gains = [row for row in load_acceptances() if row.gain is not None]
    assert len({row.source for row in gains}) > 20
    assert all(0.5 < (row.gain or 0) < 3 for row in gains)
    devices = {row.device for row in gains if row.device}
    unknown = {name for name in devices if recognize_device(name, 24 << 30) is None}
    assert unknown == {"NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU"}


def test_a_draft_that_is_slower_on_average_does_not_pay() -> None:
    """Even where its interval reaches beyond 1."""
    one, cost = Estimate(1.5, 1.1, 2.0), Estimate(1.6, 1.2, 2.0)
    assert DraftStep(1, cost, {"any text": one}).verdict == "slows"
    assert DraftStep(1, one, {"any text": cost}).verdict == "open"
