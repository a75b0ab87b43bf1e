"""What a forecast prints."""

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.measure import EXPERIMENT
from ggbench.experiments.forecast.record import ForecastResult, ForecastSettings
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.show.presenter import presenter_of
from ggbench.stats.decode_timing import DecodeLimit
from ggbench.stats.intervals import Estimate

RUN = Run(
    head=RunHead(
        kind=EXPERIMENT.kind, subject=Subject(model="qwen1.5-7b", quant="q4_k_m", source="twin", n_layer=32),
        setup=LlamaConfig(), settings=ForecastSettings(), command="ggbench forecast qwen1.5-7b q4_k_m",
    ),
    outcome=Outcome.COMPLETED,
    result=ForecastResult(
        "twins of 2 and 6 of 32 layers",
        Estimate(250.0, 235.0, 265.0),
        Estimate(20.0, 18.0, 23.0),
        ((1, Estimate(4.0, 3.8, 4.3)), (4096, Estimate(2.2, 2.0, 2.4))),
        ((512, Estimate(20_000.0, 18_000.0, 22_000.0)),),
        DecodeLimit(w_tokens_per_ms=67.0, b_ms=126.0, bandwidth_bytes_per_s=35e9, bandwidth_source="measured"),
    ),
)  # fmt: skip


FAILED = replace(RUN, outcome=Outcome.FAILED, reason="no layer stands alone", result=None)


def test_json_has_every_field_and_the_ending_is_one_line() -> None:
    show = presenter_of("forecast")
    document, empty = (show.documents.value(run) for run in (RUN, FAILED))
    assert document.keys() == empty.keys()
    assert (document["b_ms"], document["w_ci95"], empty["b_ms"]) == (250.0, (18.0, 23.0), None)
    assert (document["tok_s_4096"], document["tok_s_4096_ci95"]) == (2.2, (2.0, 2.4))
    assert (document["prefill_ms_512"], document["basis"]) == (20_000.0, "twins of 2 and 6 of 32 layers")
    assert show.ending(RUN) == ("Expected 2.20 ±0.20 tok/s at a context of 4,096, from twins of 2 and 6 of 32 layers.")
    assert show.ending(FAILED) == "failed: no layer stands alone"
