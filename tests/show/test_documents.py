"""JSON that programs can rely on: names, nulls, strictness."""

import json
import math
from collections.abc import Callable

import pytest

from ggbench.experiments.decode.show import DOCUMENTS
from ggbench.runs.run import Run

Golden = Callable[[str, str], None]
BENCH = DOCUMENTS.several
assert BENCH is not None
json_text = BENCH.text


def test_document_of_rows(rows: tuple[Run, ...], golden: Golden) -> None:
    golden("bench.json", json_text({"rows": [DOCUMENTS.value(row) for row in rows]}) + "\n")


def test_text_survives_and_steers_nothing() -> None:
    name = "模型 é \x1b[31m \x9b2J \u202e \u200b \U000e0041 \udcff \u2028"
    text = json_text({"model": name})
    assert "模型 é" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert text.encode("utf-8")
    assert json.loads(text)["model"] == name


def test_a_number_without_a_form_in_json_is_null_and_another_value_is_refused() -> None:
    strange = json_text({"x": [math.nan, math.inf, -math.inf, 1.0]})
    assert json.loads(strange, parse_constant=pytest.fail)["x"] == [None, None, None, 1.0]
    with pytest.raises(TypeError):
        json_text({"model": object()})
