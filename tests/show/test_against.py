"""A measured row next to published ones: which are nearest, and that every difference is named."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.experiments.quality.compared import nearest_to_score, quality_against_document
from ggbench.experiments.quality.record import Divergence, QualityResult, QualitySettings, ScoredText, TextSource
from ggbench.experiments.quality.texts import SHA256
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.against import against_tables, nearest_to
from ggbench.show.document import json_text
from ggbench.show.presenter import presenter_of
from ggbench.show.run_documents import QUANT
from ggbench.stats.intervals import Estimate
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


@pytest.fixture
def run(completed: QuantSummary) -> Run:
    one = Estimate(0.03, 0.001)
    apart = Divergence(one, ((100.0, 1.0), (99.0, 0.5)), Estimate(0.9, 0.01), one, one, one, Estimate(14.0, 0.1))
    text = TextSource("wiki.test.raw", SHA256, 1_290_590, "/texts/wiki.test.raw")
    result = QualityResult(
        text, 512, ScoredText(288_000, 562, 151_936, "0" * 64), 562, 143_310, Estimate(14.5, 0.1), divergence=apart
    )
    head = replace(completed.run.head, kind="quality", settings=QualitySettings(text))
    return replace(completed.run, head=head, result=result)


def _differences(run: Run) -> set[str]:
    return {text for near in nearest_to_score(run) for text in near.differences}


def test_wikitext_2_is_known_by_its_content(run: Run) -> None:
    assert not any(text.startswith("text wikitext-2") for text in _differences(run))
    assert isinstance(run.result, QualityResult)
    other = replace(run.result, text=TextSource("wikitext-2", "1" * 64, 5))
    assert "text wikitext-2, not another wikitext-2" in _differences(replace(run, result=other))


def test_the_nearest_is_the_own_models_row(run: Run) -> None:
    rows = quality_against_document(run)["against"]
    assert isinstance(rows, list)
    first, *others = rows
    assert (first["source"], first["model"], first["perplexity"]) == ("article", "qwen1.5-7b", 14.35)
    assert list(first["differences"]) == [
        "KV cache f16, not f16/q8_0", "text wiki test, not wikitext-2", "n_ctx not stated, not 512"
    ]  # fmt: skip
    assert first["ln_ppl_ratio"] == pytest.approx(0.0098, abs=1e-4)
    assert all("compared with f16, not a file of logits" in each["differences"] for each in others)


def test_names_cannot_steer_the_terminal(run: Run, render: Callable[..., str]) -> None:
    assert isinstance(run.result, QualityResult)
    result = replace(run.result, text=replace(run.result.text, name="a\x1b[31m.txt", sha256="0" * 64))
    subject = replace(run.subject, quant="q4\x1b[2J")
    shown = replace(run, result=result, head=replace(run.head, subject=subject))
    presenter = presenter_of("quality")
    for table in (presenter.table([shown, shown]), presenter.against([shown]), presenter.details(shown)):
        assert "\x1b" not in render(table, 80)
