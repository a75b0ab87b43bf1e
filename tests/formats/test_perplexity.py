import pytest

from ggbench.decisions.compare.comparison import compare_quants
from ggbench.errors import BadFile, UsageError
from ggbench.experiments.quality.record import QualityResult
from ggbench.formats.importing import keep
from ggbench.runs.store.database import Store
from ggbench.runs.summary import QuantSummary
from ggbench.stats.intervals import Estimate
from tests.formats.conftest import PEERS, ReadRuns


def test_a_perplexity_is_read_with_its_error(read: ReadRuns) -> None:
    (run,) = read("llama-perplexity.txt", model="smollm2", quant="q4_1")

    found = run.run.result
    assert isinstance(found, QualityResult)
    assert found.ppl == Estimate(6.3991, 0.66258)
    assert (found.n_ctx, found.n_chunks, found.n_scored) == (256, 6, 762)
    assert (found.divergence, found.base) == (None, None)


def test_a_divergence_is_read_with_percentiles_and_errors(read: ReadRuns) -> None:
    (run,) = read("llama-perplexity-kl.txt", model="smollm2", quant="q2_k")

    found = run.run.result
    assert isinstance(found, QualityResult)
    apart = found.divergence
    assert apart is not None
    assert found.ppl == Estimate(8.681482, 0.905043)
    assert apart.kld == Estimate(0.362284, 0.014854)
    assert apart.same_top.mean == pytest.approx(0.7769)
    assert apart.p_diff.mean == pytest.approx(-0.08288)
    assert apart.rms_p_diff.error == pytest.approx(0.0079)
    assert (apart.base_ppl, apart.ln_ppl_ratio) == (Estimate(6.399098, 0.662581), Estimate(0.305035, 0.032187))
    assert apart.kld_percentiles[0] == (100.0, 3.496181)
    assert apart.kld_percentiles[-1] == (0.0, 0.000269)
    assert dict(apart.kld_percentiles)[50.0] == 0.24112
    assert len(apart.kld_percentiles) == 11


def test_a_log_that_names_its_file_needs_no_name(read: ReadRuns) -> None:
    text = (PEERS / "llama-perplexity.txt").read_text()
    line = (
        "llama_model_loader: loaded meta data with 34 key-value pairs and 272 tensors from /home/me/smol-Q4_K_M.gguf\n"
    )

    (run,) = read("log.txt", line + text, model="other", quant="q2_k")

    assert (run.run.subject.model, run.run.subject.quant) == ("smol", "q4_k_m")


def test_unknown_texts_do_not_compare(store: Store, read: ReadRuns) -> None:
    runs = [
        QuantSummary.of([each.run])
        for name, quant in (("llama-perplexity.txt", "q4_1"), ("llama-perplexity-kl.txt", "q2_k"))
        for each in read(name, model="smollm2", quant=quant)
    ]

    lines = {line.key: line for line in compare_quants(runs).lines}

    assert lines["ppl"].verdict == "different texts or chunks"
    assert lines["ppl"].better == (False, False)


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("llama-perplexity.txt", "Final", "Fin", "no final estimate"),
        ("llama-perplexity.txt", "calculating perplexity over", "calculating", "over how many chunks"),
        ("llama-perplexity.txt", "PPL = 6.3991", "PPL = nan", "'nan' is not a number"),
        ("llama-perplexity.txt", "PPL = 6.3991", "PPL = 6.39.91", "'6.39.91' is not a number"),
        ("llama-perplexity.txt", "over 6 chunks", "over 0 chunks", "cannot be scored"),
        ("llama-perplexity-kl.txt", "Same top p", "Same", "the statistics end before same_top"),
    ],
)
def test_what_is_incomplete_is_refused(name: str, old: str, new: str, expected: str, read: ReadRuns) -> None:
    text = (PEERS / name).read_text()
    assert old in text

    with pytest.raises(BadFile) as caught:
        read("x.txt", text.replace(old, new), model="a", quant="b")

    assert expected in caught.value.message
    assert caught.value.hint


def test_the_same_output_is_stored_once_and_two_are_not_mixed(store: Store, read: ReadRuns) -> None:
    """Its figures decide, as the clock in the log differs from run to run; it does not say which model it was."""
    text = (PEERS / "llama-perplexity.txt").read_text()
    kept = keep(store, read("llama-perplexity.txt", model="a", quant="b"))
    kept += keep(store, read("copy.txt", text.replace("0.18.", "0.19."), model="a", quant="b"))
    assert [each.is_new for each in kept] == [True, False]
    with pytest.raises(BadFile, match="2 runs"):
        read("x.txt", text * 2, model="a", quant="b")
    with pytest.raises(UsageError, match="does not name its model"):
        read("llama-perplexity.txt")


def test_a_damaged_percentile_is_left_out(read: ReadRuns) -> None:
    text = (PEERS / "llama-perplexity-kl.txt").read_text()
    found = [read("x.txt", each, model="a", quant="b")[0].run.result for each in (text, text.replace("90.0%", "90..%"))]
    whole, damaged = (
        dict(each.divergence.kld_percentiles) for each in found if isinstance(each, QualityResult) and each.divergence
    )
    assert whole.keys() - damaged.keys() == {90.0}
