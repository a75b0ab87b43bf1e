"""The acceptance of drafts that is expected before it is measured: what others published."""

import pytest

from ggbench.expect.drafts import expected_acceptance, load_acceptances
from ggbench.stats.speculation import acceptance_of


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
    code, chat = (expected_acceptance("mtp", task=task) for task in ("code", "chat"))
    assert chat == expected_acceptance("mtp"), "three rows of chats are too few"
    assert code != chat and code.low > chat.low
    assert expected_acceptance("eagle", 70_000_000_000).value > expected_acceptance("eagle", 8_000_000_000).value


def test_a_share_of_drafted_tokens_is_less_than_the_acceptance_of_one_after_accepted_ones() -> None:
    """After the first rejected token of a step, the others count as rejected."""
    rows = [row for row in load_acceptances() if row.share is not None and row.n_draft != 1]
    assert len(rows) > 20
    assert all(row.acceptance is not None and row.acceptance > row.share for row in rows if row.share)


def test_every_acceptance_names_its_place_and_kind() -> None:
    rows = load_acceptances()
    assert {row.kind for row in rows} == {"draft", "mtp", "eagle", "dflash", "medusa", "ngram"}
    assert all(row.source.startswith("https://") for row in rows)
    assert all(row.mean_len or row.share for row in rows)
