"""Rows side by side: better only where intervals lie apart, and differences in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ggbench.records.decode import DecodeResult, DecodeSettings
from ggbench.records.memory import DeviceBuffers, Memory, Place
from ggbench.records.outcome import Outcome
from ggbench.records.run import Run, RunHead
from ggbench.records.setup import LlamaSetup
from ggbench.records.speed import DecodeLimit, LatencySummary, LineFit
from ggbench.records.subject import Subject
from ggbench.records.summary import QuantSummary
from ggbench.report.comparison import ComparedLine, Comparison, compare_quants
from tests.fakes.machines import ENVIRONMENT
from tests.fakes.summaries import search_of, with_run


def row(
    w: tuple[float | None, tuple[float, float | None] | None] = (205.0, (201.0, 209.0)),
    b: tuple[float | None, tuple[float, float] | None] = (10.0, (9.9, 10.1)),
    **changes: object,
) -> QuantSummary:
    """A decode; `changes` go to the record that has a field of that name."""
    records: list[Any] = [
        DecodeResult(
            n_prompt=25,
            n_gen=400,
            fit=LineFit(400, w[0], w[1], b[0], b[1], 0.9, None),
            latency=LatencySummary(11.0, 12.0, 13.0, 90.0, None),
            limit=DecodeLimit(250.0, 8.0, 20e9, "given"),
        ),
        Memory(buffers=(DeviceBuffers("CPU", Place.HOST, 900, 50, 25, 25),), n_ctx=512),
        Subject(
            model="m",
            quant="q4_k_m",
            source="file",
            file="/m/q4.gguf",
            file_bytes=1000,
            n_params=1000,
            bpw=4.0,
            weight_bytes=900,
            kv_bytes_per_token=10,
            header_sha256="ab" * 32,
        ),
    ]
    head_changes: dict[str, Any] = {name: changes.pop(name) for name in ("environment", "setup") if name in changes}
    for index, record in enumerate(records):
        own = {name: changes.pop(name) for name in tuple(changes) if hasattr(record, name)}
        records[index] = replace(record, **own)
    result, memory, subject = records
    head = RunHead(
        kind="decode", subject=subject, setup=LlamaSetup(), settings=DecodeSettings(400), environment=ENVIRONMENT
    )
    run = Run(head=replace(head, **head_changes), outcome=Outcome.COMPLETED, memory=memory, result=result)
    return QuantSummary.of([replace(run, **changes)])  # type: ignore[arg-type]


def line(comparison: Comparison, header: str) -> ComparedLine:
    return next(line for line in comparison.lines if line.header == header)


def test_apart_is_better_and_overlap_is_the_same() -> None:
    """More W is better, less B is better; overlapping intervals mark neither and say so."""
    compared = compare_quants([row(), row(w=(300.0, (290.0, 310.0)), b=(10.1, (10.0, 10.2)))])
    assert line(compared, "W").better == (False, True)
    assert line(compared, "W").verdict == "b is better"
    assert line(compared, "B").better == (False, False)
    assert line(compared, "B").verdict == "the same within the interval"


def test_ratios_and_b_as_w16_take_the_interval_of_their_measure() -> None:
    """The same fit is worse in W% on a machine with a better limit, and better in B as w16 at more bits per weight."""
    compared = compare_quants([row(), row(bpw=8.0, limit=DecodeLimit(500.0, 4.0, 40e9, "given"))])
    assert line(compared, "W").verdict == "the same within the interval"
    assert line(compared, "W%").better == (True, False)
    assert line(compared, "B%").better == (True, False)
    assert line(compared, "B as w16").better == (False, True)
    assert line(compared, "B as w16").texts == ("40.00", "20.00")


def test_a_bound_of_w_can_win_but_shows_no_ratio() -> None:
    """`> 1234` lies beyond 209; and W% of a bound is not known, so nothing is claimed of it."""
    compared = compare_quants([row(), row(w=(None, (1234.0, None)))])
    assert line(compared, "W").texts[1] == "> 1234"
    assert line(compared, "W").verdict == "b is better"
    assert line(compared, "W%").better == (False, False)
    assert line(compared, "W%").verdict == ""


def test_without_an_interval_nothing_is_better() -> None:
    """Too few samples leave W a value alone, and it is named as such."""
    compared = compare_quants([row(), row(w=(900.0, None))])
    assert line(compared, "W").better == (False, False)
    assert line(compared, "W").verdict == "b without an interval"


def test_of_three_two_may_be_better_together() -> None:
    """The two that overlap beat the third; what is beaten by one of them is not marked though it meets the other."""
    a, b, c = (row(w=(1.0, interval)) for interval in ((300.0, 320.0), (310.0, 330.0), (200.0, 210.0)))
    compared = compare_quants([a, b, c])
    assert line(compared, "W").better == (True, True, False)
    assert line(compared, "W").verdict == "a and b are better, and the same within the interval"


def test_memory_is_exact_and_percentiles_have_no_interval() -> None:
    """A byte less is better; a lower p50 of one run is named and not called better."""
    less = row(
        buffers=(DeviceBuffers("CPU", Place.HOST, 900, 50, 25, 24),),
        latency=LatencySummary(5.5, 12.0, 13.0, 180.0, None),
    )
    compared = compare_quants([row(), less])
    assert line(compared, "memory").better == (False, True)
    assert line(compared, "memory").verdict == "b is better (exact)"
    assert line(compared, "p50").better == (False, False)
    assert line(compared, "p50").verdict == "b is 50 % lower; no interval"
    assert line(compared, "p99").verdict == "the same"
    assert line(compared, "speed").verdict == "b is 100 % higher; no interval"
    assert line(compare_quants([row(), row()]), "memory").verdict == "the same"


def test_memory_of_a_run_that_ended_early_is_no_better() -> None:
    """It may not have taken all of it: neither of the two has a star."""
    early = row(buffers=(DeviceBuffers("CPU", Place.HOST, 900, 0, 0, 0),), outcome=Outcome.CANCELLED)
    memory = line(compare_quants([row(), early]), "memory")
    assert memory.better == (False, False)
    assert memory.verdict == "b not completed"


def test_searches_are_compared_by_what_they_found() -> None:
    """More context is better where a decode proved it; the memory that a search filled is no merit."""
    searches = [QuantSummary.of([search_of(row().run, n_ctx, proven=n_ctx < 8192)]) for n_ctx in (2816, 4096, 8192)]
    proven = compare_quants(searches[:2])
    assert line(proven, "max n_ctx").better == (False, True)
    assert line(proven, "memory").better == (False, False)
    assert line(proven, "memory").verdict == "a and b searched for the largest n_ctx"
    assert line(compare_quants(searches[1:]), "max n_ctx").better == (False, False)
    cut_short = with_run(searches[1], outcome=Outcome.CANCELLED)
    assert line(compare_quants([searches[0], cut_short]), "max n_ctx").better == (False, False)
    assert "max n_ctx" not in {line.header for line in compare_quants([row(), row()]).lines}


def test_a_row_that_measured_nothing_stands_beside_one_that_did() -> None:
    """Everything unknown is a dash, nothing is better than nothing, and the reason is a warning."""
    nothing = row(
        outcome=Outcome.OUT_OF_MEMORY, reason="no \x1b[31mroom", fit=None, latency=None, limit=None, buffers=()
    )
    compared = compare_quants([row(), nothing])
    assert {line.texts[1] for line in compared.lines} == {"—"}
    assert not any(any(line.better) for line in compared.lines)
    assert {line.verdict for line in compared.lines} == {""}
    assert compared.warnings[0] == "b did not complete: no [31mroom"


def test_nothing_differs_between_a_run_and_its_repetition() -> None:
    """Free memory of a GPU and the run's number are no differences."""
    again = replace(ENVIRONMENT, gpus=(replace(ENVIRONMENT.gpus[0], free_bytes=1),))
    compared = compare_quants([row(run_id=1), row(run_id=2, environment=again)])
    assert [differences.lines for differences in compared.differences] == [(), (), ()]
    assert compared.warnings == ()


def test_differences_are_named_with_their_letters() -> None:
    """By topic: the file, how it was loaded, and the machine."""
    other = replace(ENVIRONMENT, llama_cpp="build 7001", system_info="CUDA : ARCHS = 890 | CPU : AMX = 1", gpus=())
    changed = row(
        quant="q8_0", bpw=8.5, n_ctx=1024, setup=LlamaSetup(threads=4, flash_attn="off"), environment=other,
        limit=DecodeLimit(250.0, 8.0, 40e9, "given"),
    )  # fmt: skip
    file, configuration, environment = compare_quants([row(), changed, row()]).differences
    assert "quant: q4_k_m in a and c, q8_0 in b" in file.lines
    assert "BPW: 4.00 in a and c, 8.50 in b" in file.lines
    assert "threads: one per core in a and c, 4 in b" in configuration.lines
    assert "flash attention: auto in a and c, off in b" in configuration.lines
    assert "llama.cpp: build 7000 (abcdef1) in a and c, build 7001 in b" in environment.lines
    assert "compiled in: AVX512 = 1 in a and c, AMX = 1 in b" in environment.lines
    assert "GPUs: NVIDIA RTX 4090 24.0 GiB in a and c, none in b" in environment.lines
    assert "bandwidth of the limits: 20.0 GB/s in a and c, 40.0 GB/s in b" in environment.lines


def test_an_unknown_environment_is_not_the_same() -> None:
    """It is named as unknown, without any other difference."""
    _, _, environment = compare_quants([row(), row(environment=None)]).differences
    assert environment.lines == ("unknown for b",)


def test_numbers_of_different_things_come_with_a_warning() -> None:
    """Another length, context or model makes some numbers hard to compare; an unsteady machine makes all of them."""
    warnings = compare_quants([row(), row(model="n", n_gen=100, n_ctx=1024, unsteady="it slowed")]).warnings
    assert warnings[0] == "b was not steady: it slowed"
    assert [warning.split(":")[0] for warning in warnings[1:]] == [
        "different models",
        "different lengths",
        "different n_ctx",
    ]
