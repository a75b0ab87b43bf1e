"""What a search says about each n_ctx that it tries."""

import pytest

from ggbench.engines.endings import Outcome
from ggbench.experiments.maxctx.record import Probe, answer_text
from ggbench.units import MIB

OUT = Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        (Probe(10_752, "alloc", Outcome.COMPLETED, 0.123), "n_ctx 10,752 loads (0.12 s)"),
        (
            Probe(12_032, "alloc", OUT, 0.13, missing_bytes=3 * MIB),
            "n_ctx 12,032 does not load: out of memory, 3.00 MiB short (0.13 s)",
        ),
        (
            Probe(4_608, "alloc", OUT, 0.85, device="device 0 of 10.0.0.7:50052"),
            "n_ctx 4,608 does not load: out of memory on device 0 of 10.0.0.7:50052 (0.85 s)",
        ),
        (Probe(34_560, "decode", OUT, 5.02), "n_ctx 34,560 loads but fails when decoding: out of memory (5.0 s)"),
        (Probe(11_520, "decode", Outcome.COMPLETED, 41.2), "n_ctx 11,520 decodes at its far end (41 s)"),
        (
            Probe(512, "decode", Outcome.CRASHED, 1.0, reason="the worker was ended by SIGSEGV"),
            "n_ctx 512 loads but fails when decoding, llama.cpp crashed: the worker was ended by SIGSEGV (1.0 s)",
        ),
        (Probe(512, "alloc", Outcome.FAILED, 1.0), "n_ctx 512 does not load: llama.cpp refused (1.0 s)"),
        (Probe(512, "decode", Outcome.TIMED_OUT, 60.0), "n_ctx 512 is not known to work: timed out (60 s)"),
    ],
)
def test_an_answer_in_one_line(probe: Probe, text: str) -> None:
    assert answer_text(probe, "llama.cpp") == text
