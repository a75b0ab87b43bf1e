"""A measured row beside published ones: which are nearest, and that every difference is named."""

import json
from collections.abc import Callable

from ggbench.runs.summary import QuantSummary
from ggbench.show.against import against_tables, nearest_to
from ggbench.show.document import json_text
from ggbench.show.run_documents import QUANT
from tests.fakes.measured import with_subject


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
    row = with_subject(twin, model="twin:qwen2.5-7b", quant="q8_0")
    against = json.loads(json_text(QUANT.value(row, against=nearest_to(row))))["against"]
    assert against
    for near in against:
        assert "system " in near["differences"][0]
        assert any(words.startswith("device ") for words in near["differences"])
        assert near["model"] == "qwen2.5-7b"
        assert near["tok_s"] is not None
