"""Tables of the theoretical limits in a terminal."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from ggbench.machine.description import parse_gpus
from ggbench.models.reference import parse_model
from ggbench.show.limits import limits_answer
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.limits import hardware_of, model_limits
from ggbench.sizing.theory.weights import CountedModel, count_model
from ggbench.units import GIB

Golden = Callable[[str, str], None]
Render = Callable[..., str]

CARD = replace(
    hardware_of(parse_gpus("rtx-4090")[0]),
    memory_bytes=24 * GIB,
    memory_source="NVIDIA Ada GPU Architecture whitepaper",
)


@pytest.fixture(scope="module")
def counted() -> tuple[CountedModel, KvCache]:
    model = count_model(parse_model("qwen1.5-7b", "w16", "w8", "w4"))
    return model, kv_cache(model.file)


@pytest.mark.parametrize(("width", "why"), [(60, False), (100, True)])
def test_the_limits_in_a_terminal(
    counted: tuple[CountedModel, KvCache], render: Render, golden: Golden, width: int, why: bool
) -> None:
    model, kv = counted
    rows = model_limits(model.weights, kv, CARD, 131_072)
    answer = limits_answer(model, kv, CARD, rows)
    text = render(answer.rich(why=why), width)
    golden(f"limits_{width}.txt", text)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "22,072" in text
    assert ("113 and 481" in text, "≤ 73.5" in text) == (why, why)
