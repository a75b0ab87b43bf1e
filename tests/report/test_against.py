"""A measured row beside published ones: which are nearest, and that every difference is named."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.runs.summary import QuantSummary
from ggbench.show.against import against_tables, nearest_to, published_model
from ggbench.show.document import json_text
from ggbench.show.run_documents import QUANT
from tests.fakes.summaries import with_subject


def test_the_articles_row_stands_under_the_same_measurement(
    completed: QuantSummary, render: Callable[..., str], golden: Callable[[str, str], None]
) -> None:
    text = render(against_tables([completed]), 120)
    golden("against.txt", text)
    (first, *others) = nearest_to(completed)
    assert (first.row.table, first.differences) == ("6.4.4", ())
    assert others
    assert all(near.differences for near in others)


def test_json_has_every_difference(twin: QuantSummary) -> None:
    row = with_subject(twin, model="synth:qwen2.5-7b", quant="q8_0")
    against = json.loads(json_text(QUANT.value(row, against=nearest_to(row))))["against"]
    assert against
    for near in against:
        assert "system " in near["differences"][0]
        assert any(words.startswith("device ") for words in near["differences"])
        assert near["model"] == "qwen2.5-7b"
        assert near["tok_s"] is not None


@pytest.mark.parametrize(
    ("model", "file", "expected"),
    [
        ("synth:qwen1.5-7b", "", "qwen1.5-7b"),
        ("Qwen/Qwen1.5-7B-Chat-GGUF", "", "qwen1.5-7b"),
        ("/models", "/models/qwen1_5-72b-chat-q4_k_m.gguf", "qwen1.5-72b"),
        (".", "./Qwen2-57B-A14B-Instruct-Q8_0-00001-of-00002.gguf", "qwen2-57b-a14b"),
        ("qwen1.5-7bis", "", None),
        ("gemma-7b", "gemma.gguf", None),
    ],
)
def test_a_published_model_is_found_by_name_or_file(
    completed: QuantSummary, model: str, file: str, expected: str | None
) -> None:
    assert published_model(replace(completed.subject, model=model, file=file)) == expected
