"""Scores of quants: which loses least, and names that cannot steer the terminal."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from ggbench.decisions.compare.comparison import compare
from ggbench.experiments.quality.record import Divergence, QualityResult, QualitySettings, ScoredText, TextSource
from ggbench.experiments.quality.texts import SHA256
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.presenter import presenter_of
from ggbench.stats.intervals import MeanError


@pytest.fixture
def run(completed: QuantSummary) -> Run:
    one = MeanError(0.03, 0.001)
    apart = Divergence(one, ((100.0, 1.0), (99.0, 0.5)), MeanError(0.9, 0.01), one, one, one, MeanError(14.0, 0.1))
    text = TextSource("wiki.test.raw", SHA256, 1_290_590, "/texts/wiki.test.raw")
    result = QualityResult(
        text, 512, ScoredText(288_000, 562, 151_936, "0" * 64), 562, 143_310, MeanError(14.5, 0.1), divergence=apart
    )
    head = replace(completed.run.head, kind="quality", settings=QualitySettings(text))
    return replace(completed.run, head=head, result=result)


@pytest.mark.parametrize(("kld", "said"), [(0.031, "may lose least"), (0.2, "loses least")])
def test_the_least_loss_is_certain_where_intervals_are_apart(run: Run, kld: float, said: str) -> None:
    assert isinstance(run.result, QualityResult) and run.result.divergence is not None
    divergence = replace(run.result.divergence, kld=MeanError(kld, 0.001))
    other = replace(run, result=replace(run.result, divergence=divergence))
    assert f" {said} against " in presenter_of("quality").table([other, run]).text


@pytest.mark.parametrize(("share", "outcome"), [(0.7, "better"), (0.89, "undecided")])
def test_shares_of_same_top_tokens_are_compared_by_their_intervals(run: Run, share: float, outcome: str) -> None:
    assert isinstance(run.result, QualityResult) and run.result.divergence is not None
    divergence = replace(run.result.divergence, same_top=MeanError(share, 0.01))
    runs = run, replace(run, result=replace(run.result, divergence=divergence))
    metrics = {line.metric: line for line in compare([(QuantSummary.of([each]),) for each in runs]).metrics}
    assert metrics["same_top"].outcome == outcome


def test_names_cannot_steer_the_terminal(run: Run, render: Callable[..., str]) -> None:
    assert isinstance(run.result, QualityResult)
    result = replace(run.result, text=replace(run.result.text, name="a\x1b[31m.txt", sha256="0" * 64))
    subject = replace(run.subject, quant="q4\x1b[2J")
    shown = replace(run, result=result, head=replace(run.head, subject=subject))
    presenter = presenter_of("quality")
    for answer in (presenter.table([shown, shown]), presenter.details(shown)):
        text = render(answer, 80)
        assert "\x1b" not in text
        assert max(map(cell_len, text.splitlines())) <= 80
