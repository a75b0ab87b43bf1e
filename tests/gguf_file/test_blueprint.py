"""Hyperparameters that make no model are refused, with the field in the message."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ggbench.errors import UsageError
from ggbench.gguf_file.blueprint import Hyperparameters

DENSE = Hyperparameters("qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=2, n_ff=768, n_vocab=512, n_ctx_train=2048)
EXPERTS = {"n_expert": 8, "n_expert_used": 2, "n_ff_expert": 256, "n_ff_shared_expert": 512}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_layer", 0),
        ("n_embd", -256),
        ("n_head", 0),
        ("n_head_kv", 0),
        ("n_ff", 1.5),
        ("n_vocab", True),
        ("n_ctx_train", 1 << 60),
        ("n_head", 3),
        ("n_head_kv", 3),
        ("head_dim", 128),
        ("head_dim", "64"),
        ("rope_freq_base", 0.0),
        ("rope_freq_base", float("nan")),
        ("norm_rms_eps", "1e-6"),
        ("architecture", "gpt2"),
        ("n_expert", 8),
    ],
)
def test_a_value_that_makes_no_model_names_its_field(field: str, value: object) -> None:
    """A catalog entry is a person's text: what is wrong with it is said, not raised from deep within."""
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(UsageError, match=field):
        dataclasses.replace(DENSE, **wrong)


@pytest.mark.parametrize("field", EXPERTS)
def test_a_mixture_of_experts_needs_each_of_its_numbers(field: str) -> None:
    """One left at zero is named."""
    given: dict[str, Any] = EXPERTS | {field: 0}
    with pytest.raises(UsageError, match=field):
        dataclasses.replace(DENSE, architecture="qwen2moe", **given)


def test_more_experts_used_than_there_are_is_refused() -> None:
    """No router can pick nine of eight."""
    given: dict[str, Any] = EXPERTS | {"n_expert_used": 9}
    with pytest.raises(UsageError, match="n_expert_used 9"):
        dataclasses.replace(DENSE, architecture="qwen2moe", **given)


def test_an_odd_head_has_no_rotary_positions() -> None:
    """Rotary positions turn pairs of numbers."""
    with pytest.raises(UsageError, match="head_dim 15"):
        dataclasses.replace(DENSE, n_embd=60, n_head=4, n_head_kv=4)
