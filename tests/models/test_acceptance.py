"""Others' acceptance of drafts: each figure has a source, is possible, and agrees with the counts it comes from."""

import re

import pytest

from ggbench.models.published.acceptance import Acceptance, load_acceptance

ROWS = load_acceptance()


def test_every_figure_has_a_source_and_is_possible() -> None:
    for row in ROWS:
        assert row.source.startswith("https://"), row
        assert 1 <= row.mean_len <= (row.n_draft or 99) + 1, row
    assert len(set(ROWS)) == len(ROWS)


def test_a_length_derived_from_counts_is_tokens_per_step_of_the_target() -> None:
    counted = [(row, found) for row in ROWS if (found := re.findall(r"(?:pred|predict|acc|accept)=(\d+)", row.printed))]
    assert len(counted) > 10
    for row, found in counted:
        n_tokens, n_accepted = map(int, found)
        assert row.mean_len == pytest.approx(n_tokens / (n_tokens - n_accepted), abs=0.005), row


def test_every_kind_of_draft_that_llama_cpp_has_is_there() -> None:
    assert {"draft", "mtp", "eagle3", "dflash", "ngram"} <= {row.method for row in ROWS}
    (low, high) = (row for row in ROWS if row.target == "DeepSeek-V3")
    assert isinstance(low, Acceptance) and (low.mean_len, high.mean_len) == (1.85, 1.90)  # 85 to 90 % of one draft
