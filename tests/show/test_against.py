"""A measured row next to published ones: which are nearest, and that every difference is named."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from ggbench.commands.run_output import nearest_parts
from ggbench.decisions.compare.comparison import compare
from ggbench.engines.events import DeviceBuffers
from ggbench.experiments.quality.compared import WIKITEXT_2, score_beside
from ggbench.experiments.quality.record import Divergence, QualityResult, QualitySettings, ScoredText, TextSource
from ggbench.runs.run import Run
from ggbench.show.against import device_of, published_model, speed_beside
from ggbench.show.answer import Answer
from ggbench.show.presenter import presenter_of
from ggbench.stats.intervals import ChunkMean
from tests.fakes.measured import with_head, with_memory, with_subject


def test_the_articles_row_stands_under_the_same_measurement(
    completed: Run, render: Callable[..., str], golden: Callable[[str, str], None]
) -> None:
    text = render(Answer("", "", speed_beside(completed).parts()), 120)
    golden("against.txt", text)
    (first, *others) = speed_beside(completed).near
    assert (first.row.table, first.differences) == ("6.4.4", ())
    assert others
    assert all(near.differences for near in others)


@pytest.fixture
def run(completed: Run) -> Run:
    one = ChunkMean(0.03, (0.028, 0.032))
    apart = Divergence(
        one, ((100.0, 1.0), (99.0, 0.5)), ChunkMean(0.9, (0.88, 0.92)), one, one, one, ChunkMean(14.0),
        (0.02, 0.03, 0.04, 0.03), (0.9, 0.91, 0.89, 0.9),
    )  # fmt: skip
    text = TextSource("wiki.test.raw", WIKITEXT_2, 1_290_590, "/texts/wiki.test.raw")
    result = QualityResult(
        text,
        512,
        ScoredText(288_000, 562, "0" * 64),
        562,
        143_310,
        ChunkMean(14.5, (14.3, 14.7)),
        divergence=apart,
    )
    head = replace(completed.head, kind="quality", settings=QualitySettings(text))
    return replace(completed, head=head, result=result)


def _differences(run: Run) -> set[str]:
    return {text for near in score_beside(run).near for text in near.differences}


def test_wikitext_2_is_known_by_its_content(run: Run) -> None:
    assert not any(text.startswith("text wikitext-2") for text in _differences(run))
    assert isinstance(run.result, QualityResult)
    other = replace(run.result, text=TextSource("prose.txt", "1" * 64, 5))
    assert "text wikitext-2, not prose.txt" in _differences(replace(run, result=other))


def test_the_nearest_is_the_own_models_row(run: Run) -> None:
    first, *others = score_beside(run).near
    assert (first.row.source, first.row.model) == ("article", "qwen1.5-7b")
    assert list(first.differences) == [
        "KV cache f16, not f16/q8_0", "text wiki test, not wikitext-2", "n_ctx not stated, not 512"
    ]  # fmt: skip
    assert not any("compared with" in text for each in others for text in each.differences)
    assert presenter_of("quality").beside(replace(run, result=None)) is None


@pytest.mark.parametrize(
    ("added", "said"),
    [((-0.001, 0.001, 0.003, 0.001), "may lose least"), ((0.001, 0.001, 0.002, 0.002), "loses least")],
)
def test_the_least_loss_is_certain_where_it_is_in_nearly_all_chunks(
    run: Run, added: Sequence[float], said: str
) -> None:
    """Chunks differ by far more than the two runs do in any of them."""
    assert isinstance(run.result, QualityResult) and run.result.divergence is not None
    own = run.result.divergence
    klds = tuple(map(sum, zip(own.chunk_kld, added, strict=True)))
    divergence = replace(own, kld=ChunkMean(sum(klds) / 4, own.kld.ci95), chunk_kld=klds)
    other = replace(run, result=replace(run.result, divergence=divergence))
    assert f" {said} against " in presenter_of("quality").table([other, run]).text


@pytest.mark.parametrize(("change", "outcome"), [(0.1, "better"), (0.01, "undecided")])
def test_shares_of_same_top_tokens_are_compared_by_chunks(run: Run, change: float, outcome: str) -> None:
    assert isinstance(run.result, QualityResult) and run.result.divergence is not None
    shares = tuple(each - change - 0.02 * (-1) ** n for n, each in enumerate((0.9, 0.91, 0.89, 0.9)))
    same_top = ChunkMean(0.9 - change, (0.9 - 2 * change, 0.9))
    divergence = replace(run.result.divergence, same_top=same_top, chunk_same_top=shares)
    runs = run, replace(run, result=replace(run.result, divergence=divergence))
    metrics = {line.metric: line for line in compare([(each,) for each in runs]).metrics}
    assert metrics["same_top"].outcome == outcome


def test_names_cannot_steer_the_terminal(run: Run, render: Callable[..., str]) -> None:
    assert isinstance(run.result, QualityResult)
    result = replace(run.result, text=replace(run.result.text, name="a\x1b[31m.txt", sha256="0" * 64))
    subject = replace(run.subject, quant="q4\x1b[2J")
    shown = replace(run, result=result, head=replace(run.head, subject=subject))
    presenter = presenter_of("quality")
    against = Answer("", "", nearest_parts([shown]))
    for answer in (presenter.table([shown, shown]), against, presenter.details(shown)):
        text = render(answer, 80)
        assert "\x1b" not in text
        assert max(map(cell_len, text.splitlines())) <= 80


def test_a_published_model_is_found_by_its_whole_name_alone(completed: Run, render: Callable[..., str]) -> None:
    for model, file, expected in (
        ("twin:qwen1.5-7b", "", "qwen1.5-7b"),
        ("Qwen/Qwen1.5-7B-Chat-GGUF", "", "qwen1.5-7b"),
        ("/models", "/models/qwen1_5-72b-chat-q4_k_m.gguf", "qwen1.5-72b"),
        (".", "./Qwen2-57B-A14B-Instruct-Q8_0-00001-of-00002.gguf", "qwen2-57b-a14b"),
        ("qwen1.5-7bis", "", None),
    ):
        assert published_model(replace(completed.subject, model=model, file=file)) == expected
    unknown = with_subject(completed, model="nobody-7b", file="nobody.gguf")
    assert speed_beside(unknown).near == ()
    assert "No published row measures nobody-7b q4_k_m." in render(Answer("", "", nearest_parts([unknown])))


def test_the_device_is_the_one_that_holds_layers(completed: Run) -> None:
    assert device_of(completed) == "NVIDIA RTX 4090"
    on_cpu = with_memory(completed, buffers=(DeviceBuffers("CPU_REPACK", weight_bytes=5),))
    assert device_of(on_cpu) == "AMD EPYC 9B14"
    assert device_of(with_head(completed, environment=None)) is None
