"""Rows side by side: better only where the interval of the ratio excludes 1, and differences in words.

Without stored repeats a load is assumed to differ from the next by 2 %, so no interval of a timed ratio is narrower.
"""

import io
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from ggbench.decisions.compare.comparison import ComparedLine, Comparison, compare, compare_quants
from ggbench.decisions.compare.estimates import RunSpreads
from ggbench.decisions.compare.show import ComparisonReport
from ggbench.decisions.compare.thresholds import check_limits
from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.record import PrefillResult
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show.metric import decode_metrics
from ggbench.stats.decode_timing import DecodeLimit, DepthSpeed, LatencySummary, LineFit, PrefillSpeed
from tests.fakes.machines import ENVIRONMENT
from tests.fakes.measured import search_of, with_head, with_run


def row(
    w: tuple[float | None, tuple[float, float | None] | None] = (205.0, (201.0, 209.0)),
    b: tuple[float | None, tuple[float, float] | None] = (10.0, (9.9, 10.1)),
    **changes: object,
) -> QuantSummary:
    """A decode; `changes` go to the record that has a field of that name."""
    records: list[Any] = [
        DecodeResult(
            n_prompt=25, n_gen=400, fit=LineFit(400, w[0], w[1], b[0], b[1], 0.9),
            latency=LatencySummary(11.0, 12.0, 13.0, 90.0, None), limit=DecodeLimit(250.0, 8.0, 20e9, "given"),
        ),
        Memory(buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 900, 50, 25, 25),), n_ctx=512),
        Subject(
            model="m", quant="q4_k_m", source="file", file="/models/q4.gguf", file_bytes=1000, n_params=1000, bpw=4.0,
            weight_bytes=900, kv_bytes_per_token=10, header_sha256="ab" * 32,
        ),
    ]  # fmt: skip
    head_changes: dict[str, Any] = {name: changes.pop(name) for name in ("environment", "setup") if name in changes}
    for index, record in enumerate(records):
        own = {name: changes.pop(name) for name in tuple(changes) if hasattr(record, name)}
        records[index] = replace(record, **own)
    result, memory, subject = records
    head = RunHead(
        kind="decode", subject=subject, setup=LlamaConfig(), settings=DecodeSettings(400), environment=ENVIRONMENT
    )
    run = Run(head=replace(head, **head_changes), outcome=Outcome.COMPLETED, memory=memory, result=result)
    return QuantSummary.of([replace(run, **changes)])


def line(comparison: Comparison, header: str) -> ComparedLine:
    return next(line for line in comparison.lines if line.header == header)


def test_apart_is_better_and_a_ratio_that_may_be_one_is_undecided() -> None:
    compared = compare_quants([row(), row(w=(300.0, (290.0, 310.0)), b=(10.1, (10.0, 10.2)))])
    assert line(compared, "W").better == (False, True)
    assert line(compared, "W").verdict == "b is better than a, 1.46 ±0.15 times"
    assert line(compared, "B").better == (False, False)
    assert line(compared, "B").verdict == "undecided, b 1.01 ±0.10 times"


def test_an_interval_beyond_ten_percent_is_undecided() -> None:
    compared = compare_quants([row(), row(w=(205.0, (20.0, 2000.0)), b=(10.0, (6.0, 17.0)), latency=speed(90.0, 2.0))])
    assert line(compared, "W").verdict == "undecided, b 1.0 (0.1–9.8) times"
    assert line(compared, "B").verdict == "undecided, b 1.0 (0.6–1.7) times"
    assert "Memory: no difference." in compared.sentences
    steady = line(compare_quants([row(), row()]), "B")
    assert steady.verdict == "no difference over 10 %, b 1.00 ±0.10 times"


def in_turns(*values: tuple[float, float]) -> Comparison:
    """Compare B of two settings, each turn a pair of values, in which either goes first."""
    columns: tuple[list[QuantSummary], list[QuantSummary]] = ([], [])
    for turn, pair in enumerate(values):
        for index, value in enumerate(pair):
            found = row(b=(value, (value * 0.9, value * 1.1)))
            started = f"2026-11-23T10:{turn:02}:{30 * ((index + turn) % 2):02}+00:00"
            run = replace(found.run, head=replace(found.run.head, started_at=started), finished_at=started)
            columns[index].append(QuantSummary.of([run]))
    return compare(columns)


def test_what_slows_both_of_a_turn_is_no_difference_between_them() -> None:
    drifting = [10.0, 20.0, 14.0, 31.0]
    same = line(in_turns(*((ms, ms * ratio) for ms, ratio in zip(drifting, (1.01, 0.99, 1.0, 1.01), strict=True))), "B")
    assert same.verdict == "no difference over 10 %, b 1.002 ±0.018 times"
    slower = line(
        in_turns(*((ms, ms * ratio) for ms, ratio in zip(drifting, (1.06, 1.04, 1.05, 1.05), strict=True))), "B"
    )
    assert slower.better == (True, False)
    few = line(in_turns(*((ms, ms * 1.05) for ms in drifting[:3])), "B")
    assert few.better == (False, False)


def test_a_bound_is_not_compared() -> None:
    bounds: dict[str, Any] = {"w": (None, (1234.0, None)), "b": (None, (0.0, 20.0))}
    one, two = compare_quants([row(), row(**bounds)]), compare_quants([row(**bounds), row(**bounds)])
    for header, text in (("W", "> 1234"), ("B", "< 20.0")):
        assert line(one, header).texts[1] == text
        assert line(one, header).verdict == "only a bound (b)"
        assert line(two, header).verdict == "only a bound (a and b)"
    assert not any(any(each.better) for each in (*one.lines, *two.lines))
    assert one.sentences[-1] == "Memory: no difference."


def test_of_three_two_may_be_better_together() -> None:
    a, b, c = (row(w=(value, (value - 9, value + 9))) for value in (310.0, 320.0, 205.0))
    compared = compare_quants([a, b, c])
    assert line(compared, "W").better == (True, True, False)
    assert line(compared, "W").verdict == "undecided between a and b; worse: c"
    alike = compare_quants([row(), row(), row(w=(100.0, (99.0, 101.0)))])
    assert line(alike, "W").verdict == "no difference over 10 % between a and b; worse: c"


def test_searches_are_compared_by_what_they_found() -> None:
    searches = [QuantSummary.of([search_of(row().run, n_ctx, proven=n_ctx < 8192)]) for n_ctx in (2816, 4096, 8192)]
    proven = compare_quants(searches[:2])
    assert line(proven, "max n_ctx").better == (False, True)
    assert line(proven, "memory").better == (False, False)
    assert line(proven, "memory").verdict == "searched for the largest n_ctx (a and b)"
    assert line(compare_quants(searches[1:]), "max n_ctx").better == (False, False)
    cut_short = with_run(searches[1], outcome=Outcome.CANCELLED)
    assert line(compare_quants([searches[0], cut_short]), "max n_ctx").better == (False, False)
    assert "max n_ctx" not in {line.header for line in compare_quants([row(), row()]).lines}


def test_many_runs_are_tables_below_each_other() -> None:
    """No number is cut off."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(ComparisonReport(compare_quants([row(b=(b, (b - 0.1, b + 0.1))) for b in map(float, range(11, 19))])))
    lines = console.export_text().splitlines()
    cells = [cell for each in lines if each.startswith("B ms ") for cell in each.split("  ") if cell.strip()]
    assert [f"{b}.00 ±0.10" in " ".join(cells) for b in range(11, 19)] == [True] * 8
    assert sum(each.startswith("B ms ") for each in lines) > 1
    assert max(map(len, lines)) <= 80


def test_differences_are_named_with_their_letters() -> None:
    other = replace(ENVIRONMENT, llama_cpp="build 7001", system_info="CUDA : ARCHS = 890 | CPU : AMX = 1", gpus=())
    other = replace(other, backends=("Vulkan", "CPU"), build_flags="-DGGML_VULKAN=on")
    changed = row(
        quant="q8_0", bpw=8.5, n_ctx=1024, setup=LlamaConfig(threads=4, flash_attn="off"), environment=other,
        limit=DecodeLimit(250.0, 8.0, 40e9, "given"),
    )  # fmt: skip
    file, configuration, environment = compare_quants([row(), changed, row()]).differences.values()
    assert {"quant: q4_k_m in a and c, q8_0 in b", "BPW: 4.00 in a and c, 8.50 in b"} <= set(file)
    assert "threads: one per core in a and c, 4 in b" in configuration
    assert {
        "llama.cpp: build 7000 (abcdef1) in a and c, build 7001 in b",
        "backends: unknown for a and c, Vulkan, CPU in b",
        "compiled in: AVX512 = 1 in a and c, AMX = 1 in b", "GPUs: NVIDIA RTX 4090 24.0 GiB in a and c, none in b",
        "bandwidth of the limits: 20.0 GB/s in a and c, 40.0 GB/s in b",
    } <= set(environment)  # fmt: skip


def test_numbers_of_different_things_come_with_a_warning() -> None:
    warnings = compare_quants([row(), row(n_params=999, n_gen=100, n_ctx=1024, unsteady="it slowed")]).warnings
    assert warnings[0] == "b was not steady: it slowed"
    assert [warning.split(":")[0] for warning in warnings[1:]] == [
        "different models",
        "different lengths",
        "different n_ctx",
    ]


def test_numbers_over_other_positions_or_contexts_are_not_judged() -> None:
    compared = compare_quants([row(), row(n_gen=100, n_ctx=1024, w=(300.0, (290.0, 310.0)))])
    assert {line(compared, header).verdict for header in ("speed", "p50", "p99")} == {"different lengths (a and b)"}
    assert line(compared, "memory").verdict == "different n_ctx (a and b)"
    assert line(compared, "W").better == (False, True)


def test_two_quants_of_one_model_are_one_model_whatever_was_typed() -> None:
    def warns(*changes: dict[str, Any]) -> bool:
        return any(
            "different models" in warning for warning in compare_quants([row(**each) for each in changes]).warnings
        )

    assert not warns({"model": "/m/x-Q4_1.gguf"}, {"model": "/m/x-Q8_0.gguf", "quant": "q8_0"})
    assert warns({"architecture": "llama"}, {"architecture": "gemma3"})
    assert warns({"n_params": None}, {"n_params": None, "model": "n"})
    assert not warns({"n_params": None}, {"n_params": None, "quant": "q8_0"})


def speed(tok_s: float, error: float) -> LatencySummary:
    return LatencySummary(11.0, 12.0, 13.0, tok_s, None, (tok_s - error, tok_s + error))


def test_two_runs_end_in_a_sentence() -> None:
    small = row(buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 400, 50, 25, 25),), latency=speed(120.0, 3.0))
    large = row(quant="q8_0", latency=speed(80.0, 2.0))
    assert compare_quants([small, large]).sentences == [
        "Speed: q4_k_m is better than q8_0, 1.50 ±0.15 times.",
        "W and B: no difference over 10 %, q8_0 1.00 ±0.10 times.",
        "Memory: q4_k_m is better than q8_0, 500 B less.",
    ]
    search = compare_quants([row(run_id=1), QuantSummary.of([search_of(row(run_id=2).run, 4096)])])
    assert search.sentences == ["Memory: searched for the largest n_ctx (m q4_k_m)."]


def test_times_beside_other_programs_have_no_winner() -> None:
    """On average over the runs of one side: an undisturbed one is no excuse, and memory has one all the same."""

    def busy(share: float, tok_s: float, n_bytes: int = 400) -> list[QuantSummary]:
        one = row(latency=speed(tok_s, 1.0), buffers=(DeviceBuffers("CPU", MemoryKind.HOST, n_bytes, 50, 25, 25),))
        assert one.environment is not None
        return [
            with_head(one, environment=replace(one.environment, others_share=each))
            for each in (share - 0.05, share + 0.05)
        ]

    compared = compare([busy(0.15, 80.0), busy(0.5, 10.0, 900)])
    speeds = line(compared, "speed")
    assert (speeds.better, speeds.verdict) == ((False, False), "undecided, other programs used 50 % of the CPU")
    assert line(compared, "memory").better == (True, False)
    (check,) = check_limits(compared, {"--fail-if-slower": 0.05})
    assert (check.state, check.found) == ("undecided", "other programs used 50 % of the CPU")
    assert line(compare([busy(0.15, 80.0), busy(0.2, 10.0)]), "speed").better == (True, False)


def test_repeats_of_a_disturbed_run_tell_of_its_own_setting_alone() -> None:
    """For an unsteady run, those of its own setting count, and of others the steady ones."""

    def repeats(quant: str, *speeds: float) -> tuple[Run, ...]:
        runs = [
            row(quant=quant, unsteady="it slowed", latency=LatencySummary(11.0, 12.0, 13.0, each, None))
            for each in speeds
        ]
        return tuple(each.run for each in runs)

    unsteady = row(unsteady="it slowed")
    metric = next(each for each in decode_metrics([unsteady]) if each.key == "tok_s")
    of_other, of_own = (RunSpreads((repeats(quant, 10.0, 90.0),)).of(metric, unsteady) for quant in ("q2_k", "q4_k_m"))
    assert of_other.sigma < of_own.sigma


def at_depths(*speeds: tuple[int, float, float]) -> QuantSummary:
    found = tuple(DepthSpeed(n, 128, tok_s, 3, (tok_s - error, tok_s + error)) for n, tok_s, error in speeds)
    one = row(fit=None, depths=found, latency=None)
    head = replace(one.run.head, settings=DecodeSettings(128, depths=tuple(n for n, *_ in speeds)))
    return QuantSummary.of([replace(one.run, head=head)])


def test_speed_is_not_said_beyond_what_was_measured_without_a_line_that_says_it() -> None:
    """The lines through 400 noisy tokens gave 16 and 69 tok/s at 4,096, and no difference between them."""
    one = row(latency=speed(80.0, 2.0), w=(81.0, (41.0, 5000.0)))
    other = row(latency=speed(80.0, 2.0), w=(None, (100.0, None)))
    first, *_, last = compare_quants([one, other]).depths
    assert (first.header, last.header) == ("0", "4,096")
    assert first.texts == ("103 ±23", "86 (80–98)")
    assert (last.texts, last.verdict) == (("—", "—"), "")
    sure = row(latency=speed(80.0, 2.0))
    assert compare_quants([one, sure]).depths[-1].texts == ("—", "~31.9 ±0.7")


def test_speeds_at_depths_are_compared_there_and_nowhere_else() -> None:
    one, other = at_depths((0, 80.0, 1.0), (2048, 40.0, 0.5)), at_depths((0, 80.0, 1.0), (2048, 20.0, 0.5))
    lines = compare_quants([one, other]).depths
    assert [(line.header, line.texts) for line in lines] == [
        ("0", ("80.0 ±1.0", "80.0 ±1.0")), ("2,048", ("40.0 ±0.5", "20.0 ±0.5")), ("4,096", ("—", "—")),
    ]  # fmt: skip
    assert lines[1].verdict.startswith("a is better than b, 2.0")
    assert [each.topic for each in compare_quants([one, other]).stated[:3]] == [
        "speed at n_depth 0", "speed at n_depth 2,048", "memory",
    ]  # fmt: skip
    alone = compare_quants([at_depths((2048, 40.0, 0.5)), row(latency=speed(80.0, 2.0))]).depths
    assert [line.texts[0] for line in alone] == ["—", "40.0 ±0.5", "—"]


def test_prompts_of_one_length_are_compared() -> None:
    runs = [
        QuantSummary.of(
            [replace(row().run, result=PrefillResult((*(PrefillSpeed(n, 1.0, tok_s, 3) for n in lengths), timed)))]
        )
        for tok_s, lengths, timed in (
            (100.0, (512, 1024), PrefillSpeed(25, 1.0, 50.0, 3, (49.0, 51.0))),
            (120.0, (512, 2048), PrefillSpeed(25, 1.0, 100.0, 3, (98.0, 102.0))),
        )
    ]
    compared = compare_quants(runs)
    assert line(compared, "prefill 512").verdict == "without an interval (a and b)"
    assert line(compared, "prefill 25").verdict == "b is better than a, 2.00 ±0.20 times"
    assert line(compared, "prefill 25").texts == ("50.0 ±1.0", "100.0 ±2.0")
    assert not compared.is_empty
    assert [each.header for each in compared.lines if "prefill" in each.header] == ["prefill 25", "prefill 512"]


def test_three_runs_end_in_a_sentence() -> None:
    ws = ((300.0, (290.0, 320.0)), (310.0, (300.0, 330.0)), (200.0, (190.0, 210.0)))
    runs = [
        row(w=w, quant=quant, latency=speed(tok_s, 1.0), buffers=(DeviceBuffers("CPU", MemoryKind.HOST, n_bytes),))
        for quant, w, tok_s, n_bytes in zip(("q2_k", "q4_0", "q8_0"), ws, (120.0, 100.0, 80.0), (9, 7, 8), strict=True)
    ]
    assert compare_quants(runs).sentences == [
        "Speed: q2_k is better than q4_0, 1.20 ±0.11 times.",
        "W: undecided between q2_k and q4_0; worse: q8_0.",
        "B: no difference over 10 %.",
        "Memory: q4_0 is better than q8_0, 1 B less.",
    ]


def test_a_path_is_no_difference_where_the_quant_says_it() -> None:
    quants = [row(file="/m/q4.gguf"), row(quant="q8_0", file="/m/q8.gguf", header_sha256="cd" * 32)]
    assert not [line for line in compare_quants(quants).differences["file"] if line.startswith(("path", "header"))]
    same = [row(file="/one/q4.gguf"), row(file="/other/q4.gguf", header_sha256="cd" * 32)]
    assert [line.split(":")[0] for line in compare_quants(same).differences["file"]] == ["path", "header SHA-256"]


def test_memory_is_exact_and_percentiles_have_no_interval() -> None:
    """A byte less is better; a lower p50 of one run is not."""
    less = row(
        buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 900, 50, 25, 24),),
        latency=LatencySummary(5.5, 12.0, 13.0, 180.0, None), w=(900.0, None),
    )  # fmt: skip
    compared = compare_quants([row(), less])
    assert line(compared, "memory").verdict == "b is better than a, 1 B less"
    assert {line(compared, header).verdict for header in ("p50", "p99", "speed")} == {"without an interval (a and b)"}
    assert line(compared, "W").verdict == "without an interval (b)"
    assert [line(compared, header).better for header in ("memory", "p50", "W")] == [(False, True)] + [(False,) * 2] * 2


def test_a_run_that_ended_early_is_no_better() -> None:
    """It may not have taken all of its memory; where it measured nothing, its reason is a warning."""
    early = row(buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 900, 0, 0, 0),), outcome=Outcome.CANCELLED)
    memory = line(compare_quants([row(), early]), "memory")
    assert (memory.better, memory.verdict) == ((False, False), "not completed (b)")
    gone: dict[str, Any] = dict.fromkeys(("fit", "latency", "limit"))
    nothing = row(outcome=Outcome.OUT_OF_MEMORY, reason="no \x1b[31mroom", buffers=(), **gone)
    compared = compare_quants([row(), nothing])
    assert {each.texts[1] for each in compared.lines} == {"—"}
    assert {each.verdict for each in compared.lines} == {""}
    assert compared.warnings[0] == "b did not complete: no [31mroom"


def test_nothing_differs_between_a_run_and_its_repetition() -> None:
    """Free memory of a GPU and the run's number are no differences; an unknown environment is."""
    again = replace(ENVIRONMENT, gpus=(replace(ENVIRONMENT.gpus[0], free_bytes=1),))
    compared = compare_quants([row(run_id=1), row(run_id=2, environment=again)])
    assert not any(compared.differences.values())
    assert compared.warnings == ()
    assert compare_quants([row(), row(environment=None)]).differences["environment"] == ("unknown for b",)


def test_a_program_that_was_not_used_and_options_of_another_engine_are_told_apart() -> None:
    llama = replace(ENVIRONMENT, llama_cpp="build 7000")
    torch = replace(ENVIRONMENT, llama_cpp="", transformers="5.23.0, torch 2.13.0")
    checkpoint = row(quant="bf16", environment=torch, setup=TransformersConfig(threads=1, attention="eager"))
    found = compare_quants([row(environment=llama, setup=LlamaConfig(mlock=True)), checkpoint]).differences
    assert "llama.cpp: build 7000 in a, not used in b" in found["environment"]
    assert "Transformers: not used in a, 5.23.0, torch 2.13.0 in b" in found["environment"]
    assert "engine: llama in a, transformers in b" in found["configuration"]
    assert "threads: one per core in a, 1 in b" in found["configuration"]
    assert not any(each.startswith(("mlock", "attention", "cache")) for each in found["configuration"])


def test_a_metric_that_not_all_have_is_compared_for_those_that_do() -> None:
    runs = [row(latency=speed(80.0, 1.0), quant=quant) for quant in ("q4_k_m", "q8_0")]
    search = QuantSummary.of([search_of(row(quant="q2_k").run, 4096)])
    compared = compare_quants([*runs, search])
    assert line(compared, "speed").compared == (0, 1)
    assert "Speed: no difference over 10 % between q4_k_m and q8_0." not in compared.sentences
