"""What is advised in place of a quant that does not fit."""

from pathlib import Path

import pytest

from ggbench.models.targets import Target
from ggbench.sizing.smaller_quant import smaller_quant_advice
from ggbench.units import MIB

SIZES = {"q8_0": 600 * MIB, "q4_k_m": 400 * MIB, "q2_k": 300 * MIB}


class Sized:
    def sizes(self) -> dict[str, int]:
        return SIZES


def target(quant: str) -> Target:
    return Target("m", quant, "twin", Path("m.gguf"), 1, source=Sized())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("quant", "room_mib", "in_budget", "advice"),
    [
        pytest.param("q8_0", 450, 1.0, "q4_k_m would fit: its weights take 400.0 MiB", id="the largest that fits"),
        pytest.param("q8_0", 250, 1.0, "not even q2_k would fit", id="none fits"),
        pytest.param("q8_0", 250, 0.5, "q4_k_m would fit: its weights take about 200.0 MiB there", id="half elsewhere"),
        pytest.param("q4_k_m", 900, 1.0, "q2_k would fit", id="never a larger one, however much room there seems"),
        pytest.param("q2_k", 900, 1.0, "there is no smaller quant here", id="the smallest"),
    ],
)
def test_a_smaller_quant_is_advised_where_there_is_one(
    quant: str, room_mib: int, in_budget: float, advice: str
) -> None:
    assert smaller_quant_advice(target(quant), room_mib * MIB, in_budget).startswith(advice)
