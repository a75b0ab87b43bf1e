"""What llama.cpp would refuse of a setup only after it has loaded the model."""

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError


def test_a_quantized_v_cache_without_flash_attention() -> None:
    with pytest.raises(UsageError) as refused:
        LlamaConfig(type_v="q4_0", flash_attn="off").check()
    assert refused.value.message == "a V cache of q4_0 needs flash attention, which is off"
    assert "--flash-attn on" in (refused.value.hint or "")
    for setup in (
        LlamaConfig(type_v="q4_0"),
        LlamaConfig(type_k="q4_0", flash_attn="off"),
        LlamaConfig(type_v="bf16", flash_attn="off"),
    ):
        setup.check()
