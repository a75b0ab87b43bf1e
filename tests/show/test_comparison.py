"""Runs side by side: times are better only in turns, the rest by its interval, and differences are in words."""

import io
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from ggbench.decisions.compare.comparison import ComparedFigure, Comparison, compare
from ggbench.decisions.compare.show import comparison_answer
from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.record import PrefillResult
from ggbench.extras.transformers.config import TransformersConfig
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.show.quants import bench_answer
from ggbench.stats.decode_timing import DecodeLimit, DepthSpeed, LatencySummary, LineFit, PrefillSpeed
from ggbench.stats.turns import ordered
from tests.fakes.machines import ENVIRONMENT
from tests.fakes.measured import search_of, with_run


def row(
    w: tuple[float | None, tuple[float, float | None] | None] = (205.0, (201.0, 209.0)),
    b: tuple[float | None, tuple[float, float] | None] = (10.0, (9.9, 10.1)),
    **changes: object,
) -> Run:
    """A decode; `changes` go to the record that has a field of that name."""
    records: list[Any] = [
        DecodeResult(
            n_prompt=25, n_gen=400, fit=LineFit(400, w[0], w[1], b[0], b[1]),
            latency=LatencySummary(11.0, 13.0, 90.0),
            limit=DecodeLimit(250.0, 8.0, bandwidth_bytes_per_s=20e9, bandwidth_source="given"),
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
    return replace(run, **changes)


def compare_quants(summaries: Sequence[Run]) -> Comparison:
    """Compare one run each."""
    return compare([(summary,) for summary in summaries])


def in_turns(*columns: Sequence[Run]) -> Comparison:
    """Compare columns of runs that were measured in turns: four of the first run where there is only one."""
    measured: list[list[Run]] = [[] for _ in columns]
    n_turns = max(4, *map(len, columns))
    for turn in range(n_turns):
        for place, index in enumerate(ordered(range(len(columns)), turn)):
            each = columns[index][turn % len(columns[index])]
            started = f"2026-11-23T10:{turn:02}:{place:02}+00:00"
            run = replace(each, head=replace(each.head, started_at=started), finished_at=started)
            measured[index].append(run)
    return compare(measured)


def b_of(*values: float) -> list[Run]:
    return [row(b=(value, (value * 0.9, value * 1.1))) for value in values]


def line(comparison: Comparison, key: str) -> ComparedFigure:
    return next(line for line in comparison.metrics if line.metric == key)


def ratio_of(found: ComparedFigure) -> float | None:
    """Return the ratio of the second run to the first."""
    return None if found.versus[1] is None else found.versus[1].ratio


def test_one_run_each_is_no_verdict_but_a_ratio_and_the_command_that_decides() -> None:
    pair = [row(run_id=1, latency=speed(80.0, 1.0)), row(run_id=2, quant="q8_0", latency=speed(40.0, 1.0))]
    answer = comparison_answer(compare_quants(pair))
    assert answer.text.startswith("No verdict, one run each: q8_0 has 0.50 times the speed of q4_k_m.")
    assert answer.command == "ggbench compare 1 2 -r 4"
    told = in_turns(*([each] for each in pair))
    assert (line(told, "tok_s").outcome, told.command) == ("better", "")


def test_what_slows_both_of_a_turn_is_no_difference_between_them() -> None:
    drifting = [10.0, 20.0, 14.0, 31.0]

    def found(*ratios: float) -> ComparedFigure:
        other = b_of(*(ms * ratio for ms, ratio in zip(drifting, ratios, strict=False)))
        return line(in_turns(b_of(*drifting), other), "b_ms")

    assert found(1.01, 0.99, 1.0, 1.01).outcome == "same"
    assert found(1.2, 0.9, 1.1, 1.3).outcome == "undecided"
    slower = found(1.06, 1.04, 1.05, 1.05)
    assert (slower.better, slower.versus[1] and slower.versus[1].n_turns) == (("a",), 4)


def test_runs_one_after_the_other_have_no_verdict() -> None:
    """Whatever drifts meanwhile slows one of them alone."""
    columns = []
    for hour, ms in ((10, 10.0), (11, 15.0)):
        column = []
        for minute in range(4):
            started = f"2026-11-23T{hour}:{minute:02}:00+00:00"
            (each,) = b_of(ms)
            run = replace(each, head=replace(each.head, started_at=started), finished_at=started)
            column.append(run)
        columns.append(column)
    found = line(compare(columns), "b_ms")
    assert (found.outcome, found.better) == ("no_verdict", ())
    assert found.verdict.endswith(" has 1.50 times the B of m q4_k_m.")
    few = line(compare([column[:3] for column in columns]), "b_ms")
    assert few.versus[1] is not None and (few.versus[1].doubt, few.versus[1].n_turns) == ("few_turns", 0)
    assert few.verdict.startswith("No verdict, 0 of 4 turns: ")


def test_of_many_runs_a_small_lead_of_one_of_the_pairs_is_no_verdict() -> None:
    """Each alone would be one of 5 %, so Holm's correction asks for more."""
    base = (10.0, 10.1, 9.9, 10.0, 10.1, 9.9)
    lead = b_of(*(ms * ratio for ms, ratio in zip(base, (0.99, 0.96, 0.98, 0.97, 0.98, 1.0), strict=True)))
    assert line(in_turns(b_of(*base), lead), "b_ms").better == ("b",)
    others = [b_of(*(base[turn:] + base[:turn])) for turn in range(1, 5)]
    assert line(in_turns(b_of(*base), lead, *others), "b_ms").better == ()


def test_a_bound_is_not_compared() -> None:
    bounds: dict[str, Any] = {"w": (None, (1234.0, None)), "b": (None, (0.0, 20.0))}
    one, two = compare_quants([row(), row(**bounds)]), compare_quants([row(**bounds), row(**bounds)])
    for key, text in (("w_tokens_per_ms", "> 1234"), ("b_ms", "< 20.0")):
        assert line(one, key).texts[1] == text
        assert line(one, key).left_out == {"only a bound": "b"}
        assert line(two, key).left_out == {"only a bound": "a and b"}
    assert not any(each.better for each in (*one.metrics, *two.metrics))


def test_of_three_two_may_be_better_together() -> None:
    a, b, c = (
        b_of(*values) for values in ((10.0, 10.6, 10.0, 10.5), (10.2, 10.1, 10.3, 10.0), (20.0, 20.0, 20.1, 20.0))
    )
    found = line(in_turns(a, b, c), "b_ms")
    assert (found.better, found.outcome) == (("a", "b"), "same")


def test_searches_are_compared_by_what_they_found() -> None:
    searches = [search_of(row(), n_ctx, proven=n_ctx < 8192) for n_ctx in (2816, 4096, 8192)]
    proven = compare_quants(searches[:2])
    assert line(proven, "max_n_ctx").better == ("b",)
    assert proven.sentence == "m q4_k_m (b) holds 1,280 more tokens." or "holds 1,280 more tokens" in proven.sentence
    assert line(proven, "memory_bytes").left_out == {"searched for the largest n_ctx": "a and b"}
    assert line(compare_quants(searches[1:]), "max_n_ctx").left_out == {"not proven": "b"}
    cut_short = with_run(searches[1], outcome=Outcome.CANCELLED)
    assert line(compare_quants([searches[0], cut_short]), "max_n_ctx").better == ()
    assert "max_n_ctx" not in {line.metric for line in compare_quants([row(), row()]).metrics}


def test_many_runs_are_rows_that_fit_the_width() -> None:
    runs = [row(b=(b, (b - 0.1, b + 0.1)), run_id=int(b)) for b in map(float, range(11, 19))]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_answer(compare_quants(runs)))
    lines = console.export_text().splitlines()
    for b in range(11, 19):
        assert any(f"(run {b})" in each and f"{b}.00 ±0.10" in each for each in lines)
    assert max(map(len, lines)) <= 80


def texts(comparison: Comparison, topic: str) -> set[str]:
    return {each.text for each in comparison.differences if each.topic == topic}


def test_differences_are_named_with_their_letters() -> None:
    other = replace(ENVIRONMENT, llama_cpp="build 7001", system_info="CUDA : ARCHS = 890 | CPU : AMX = 1", gpus=())
    other = replace(other, backends=("Vulkan", "CPU"), build_flags="-DGGML_VULKAN=on")
    changed = row(
        quant="q8_0", bpw=8.5, n_ctx=1024, setup=LlamaConfig(threads=4, flash_attn="off"), environment=other,
        limit=DecodeLimit(250.0, 8.0, bandwidth_bytes_per_s=40e9, bandwidth_source="given"),
    )  # fmt: skip
    compared = compare_quants([row(), changed, row()])
    assert {"quant: q4_k_m in a and c, q8_0 in b", "BPW: 4.00 in a and c, 8.50 in b"} <= texts(compared, "file")
    assert "threads: default in a and c, 4 in b" in texts(compared, "configuration")
    assert {
        "llama.cpp: build 7000 (abcdef1) in a and c, build 7001 in b",
        "backends: — in a and c, Vulkan, CPU in b",
        "GPUs: NVIDIA RTX 4090 24.0 GiB in a and c, none in b",
    } <= texts(compared, "environment")  # fmt: skip


def test_numbers_of_different_things_come_with_a_warning() -> None:
    warnings = compare_quants([row(), row(n_params=999, n_gen=100, n_ctx=1024, unsteady="it slowed")]).warnings
    assert [warning.split(":")[0] for warning in warnings] == [
        "! b unsteady", "different models", "different lengths", "different n_ctx",
    ]  # fmt: skip


def test_numbers_over_other_positions_or_contexts_are_not_judged() -> None:
    compared = compare_quants([row(), row(n_gen=100, n_ctx=1024, w=(300.0, (290.0, 310.0)))])
    for key in ("tok_s", "p50_ms", "p99_ms"):
        assert line(compared, key).left_out == {"different lengths": "a and b"}
    assert line(compared, "memory_bytes").left_out == {"different n_ctx or engines": "a and b"}
    assert line(compared, "w_tokens_per_ms").outcome == "no_verdict"


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
    return LatencySummary(11.0, 13.0, tok_s, (tok_s - error, tok_s + error))


def host(n_bytes: int) -> tuple[DeviceBuffers, ...]:
    return (DeviceBuffers("CPU", MemoryKind.HOST, n_bytes),)


def test_the_answer_is_who_is_faster_and_what_it_takes() -> None:
    small = row(buffers=host(400), latency=speed(120.0, 3.0))
    large = row(quant="q8_0", buffers=host(900), latency=speed(80.0, 2.0))
    answer = comparison_answer(in_turns([small], [large]))
    assert answer.text == "q4_k_m is faster: 1.50 times. q4_k_m takes 500 B less."
    assert answer.notes == ["The same but for the file; 4 turns."]
    assert answer.command == ""


def test_the_mean_of_disturbed_runs_keeps_their_mark() -> None:
    steady, disturbed = row(latency=speed(80.0, 1.0)), row(latency=speed(80.0, 1.0), unsteady="it slowed")
    found = line(compare([[steady, disturbed], [steady, steady]]), "tok_s")
    assert (found.texts[0][:4], found.texts[1][:2]) == ("! 80", "80")


def test_undecided_is_said_in_one_form_with_the_command_that_decides_it() -> None:
    speeds = {1: (80.0, 90.0, 85.0, 84.0), 2: (84.0, 80.0, 95.0, 90.0)}
    columns = [
        [row(run_id=n, setup=LlamaConfig(threads=n), latency=speed(each, 1.0)) for each in tok_s]
        for n, tok_s in speeds.items()
    ]
    answer = comparison_answer(in_turns(*columns))
    assert answer.text == "Undecided in speed: 1.03 times (0.88–1.21)."
    assert answer.command == "ggbench compare 1 2 -r 8"


def test_memory_is_what_the_processes_took() -> None:
    """A file repacked for the CPU has smaller buffers than another and a larger peak."""
    repacked, plain = row(buffers=host(113), peak_bytes=199), row(buffers=host(123), peak_bytes=166)
    memory = line(compare_quants([repacked, plain]), "memory_bytes")
    assert (memory.header, memory.better, memory.texts) == ("memory (peak)", ("b",), ("199 B", "166 B"))
    one_unknown = compare_quants([repacked, row(buffers=host(123))])
    assert line(one_unknown, "memory_bytes").better == ("a",)
    gpu = (DeviceBuffers("CUDA0", MemoryKind.GPU, 900),)
    on_gpus = compare_quants([row(buffers=gpu, peak_bytes=199), row(buffers=gpu, peak_bytes=166)])
    assert line(on_gpus, "memory_bytes").header == "memory"
    noise = compare_quants([row(peak_bytes=1000), row(peak_bytes=1003)])
    assert line(noise, "memory_bytes").outcome == "same"


def at_depths(*speeds: tuple[int, float, float]) -> Run:
    found = tuple(DepthSpeed(n, 128, tok_s, 3, (tok_s - error, tok_s + error)) for n, tok_s, error in speeds)
    one = row(fit=None, depths=found, latency=None)
    head = replace(one.head, settings=DecodeSettings(128, depths=tuple(n for n, *_ in speeds)))
    return replace(one, head=head)


def test_speeds_at_depths_are_compared_there_and_nowhere_else() -> None:
    one, other = at_depths((0, 80.0, 1.0), (2048, 40.0, 0.5)), at_depths((0, 80.0, 1.0), (2048, 20.0, 0.5))
    compared = in_turns([one], [other])
    assert [(line.metric, line.texts) for line in compared.metrics[:2]] == [
        ("tok_s_d0", ("80.0", "80.0")),
        ("tok_s_d2048", ("40.0", "20.0")),
    ]
    assert line(compared, "tok_s_d2048").better == ("a",)
    assert [each.metric for each in compared.stated[:3]] == ["tok_s_d0", "tok_s_d2048", "memory_bytes"]
    assert "m q4_k_m (a)" not in compared.sentence
    alone = compare_quants([at_depths((2048, 40.0, 0.5)), row(latency=speed(80.0, 2.0))])
    assert (line(alone, "tok_s_d2048").texts, line(alone, "tok_s_d2048").outcome) == (("40.0 ±0.5", "—"), "")


def test_prompts_of_one_length_are_compared() -> None:
    runs = [
        with_run(row(), result=PrefillResult((*(PrefillSpeed(n, 1.0, tok_s, 3) for n in lengths), timed)))
        for tok_s, lengths, timed in (
            (100.0, (512, 1024), PrefillSpeed(25, 1.0, 50.0, 3, (49.0, 51.0))),
            (120.0, (512, 2048), PrefillSpeed(25, 1.0, 100.0, 3, (98.0, 102.0))),
        )
    ]
    compared = in_turns(*([each] for each in runs))
    assert line(compare_quants(runs), "prefill_25").texts == ("50.0 ±1.0", "100.0 ±2.0")
    assert line(compared, "prefill_25").better == ("b",)
    assert "b is faster in prefill 25: 2.00 times" in compared.sentence.replace(compared.names[1], "b")
    assert [each.metric for each in compared.metrics if "prefill" in each.metric] == ["prefill_25", "prefill_512"]


def test_three_runs_end_in_a_sentence() -> None:
    ws = ((300.0, (290.0, 320.0)), (310.0, (300.0, 330.0)), (200.0, (190.0, 210.0)))
    runs = [
        row(w=w, quant=quant, latency=speed(tok_s, 1.0), buffers=(DeviceBuffers("CPU", MemoryKind.HOST, n_bytes),))
        for quant, w, tok_s, n_bytes in zip(("q2_k", "q4_0", "q8_0"), ws, (120.0, 100.0, 80.0), (9, 7, 8), strict=True)
    ]
    compared = in_turns(*([each] for each in runs))
    assert compared.sentence == (
        "q2_k is the fastest: 1.20 times before q4_0. q4_0 takes the least memory: 1 B less than q8_0."
    )
    assert "c" not in line(compared, "w_tokens_per_ms").better


def test_memory_is_exact_and_a_time_of_one_run_is_not() -> None:
    """A byte less is better; a lower p50 is not."""
    less = row(
        buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 900, 50, 25, 24),),
        latency=LatencySummary(5.5, 13.0, 180.0), w=(900.0, None),
    )  # fmt: skip
    compared = compare_quants([row(), less])
    assert (line(compared, "memory_bytes").better, ratio_of(line(compared, "memory_bytes"))) == (("b",), 0.999)
    assert "takes 1 B less" in line(compared, "memory_bytes").verdict
    for key in ("p50_ms", "p99_ms", "tok_s", "w_tokens_per_ms"):
        assert (line(compared, key).outcome, line(compared, key).better) == ("no_verdict", ())


def test_memory_of_different_engines_is_not_compared() -> None:
    server = row(quant="q8_0", setup=TransformersConfig(threads=1))
    memory = line(compare_quants([row(), server]), "memory_bytes")
    assert (memory.better, memory.outcome) == ((), "left_out")


def test_a_run_that_ended_early_is_no_better() -> None:
    """It may not have taken all of its memory; where it measured nothing, its reason is a warning."""
    early = row(buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 900, 0, 0, 0),), outcome=Outcome.CANCELLED)
    memory = line(compare_quants([row(), early]), "memory_bytes")
    assert (memory.better, memory.left_out) == ((), {"not completed": "b"})
    gone: dict[str, Any] = dict.fromkeys(("fit", "latency", "limit"))
    nothing = row(outcome=Outcome.OUT_OF_MEMORY, reason="no \x1b[31mroom", buffers=(), **gone)
    compared = compare_quants([row(), nothing])
    assert {each.texts[1] for each in compared.metrics} == {"—"}
    assert {each.outcome for each in compared.metrics} == {""}
    assert compared.warnings[0] == "b did not complete: no [31mroom"


def test_nothing_differs_between_a_run_and_its_repetition() -> None:
    """Free memory of a GPU and the run's number are no differences; an unknown environment is."""
    again = replace(ENVIRONMENT, gpus=(replace(ENVIRONMENT.gpus[0], free_bytes=1),))
    compared = compare_quants([row(run_id=1), row(run_id=2, environment=again)])
    assert (compared.differences, compared.warnings) == ((), ())
    assert comparison_answer(compared).notes == ["The same file, setup and machine; 2 runs."]
    assert texts(compare_quants([row(), row(environment=None)]), "environment") == {"environment: known in a, — in b"}


def test_a_program_that_was_not_used_and_options_of_another_engine_are_told_apart() -> None:
    llama = replace(ENVIRONMENT, llama_cpp="build 7000")
    torch = replace(ENVIRONMENT, llama_cpp="", transformers="5.23.0, torch 2.13.0")
    checkpoint = row(quant="bf16", environment=torch, setup=TransformersConfig(threads=1, attention="eager"))
    compared = compare_quants([row(environment=llama, setup=LlamaConfig(mlock=True)), checkpoint])
    assert {
        "llama.cpp: build 7000 in a, — in b", "Transformers: — in a, 5.23.0, torch 2.13.0 in b",
    } <= texts(compared, "environment")  # fmt: skip
    found = texts(compared, "configuration")
    assert {"engine: llama in a, transformers in b", "threads: default in a, 1 in b"} <= found
    assert not any(each.startswith(("mlock", "attention", "cache")) for each in found)


def test_a_metric_that_not_all_have_is_compared_for_those_that_do() -> None:
    runs = [row(latency=speed(80.0, 1.0), quant=quant) for quant in ("q4_k_m", "q8_0")]
    search = search_of(row(quant="q2_k"), 4096)
    compared = compare_quants([*runs, search])
    assert line(compared, "tok_s").compared == ("a", "b")
    assert line(compared, "tok_s").outcome == "no_verdict"


def test_a_speed_of_which_only_a_bound_is_shown_has_no_ratio() -> None:
    wide = row(run_id=1, latency=LatencySummary(11.0, 13.0, 20.0, (1.9, 900.0)), unsteady="it slowed")
    known = row(run_id=2, quant="q8_0", latency=speed(80.0, 1.0))
    compared = compare_quants([wide, known])
    found = line(compared, "tok_s")
    assert (found.texts[0], found.left_out, ratio_of(found)) == ("! > 1.90", {"only a bound": "a"}, None)
    assert compared.command == "ggbench compare 1 2 -r 4"
    assert (bench_answer([wide, known]).text, bench_answer([wide, known]).command) == ("", "ggbench compare 1 2")
    fastest = bench_answer([known, row(run_id=3, latency=speed(40.0, 1.0))])
    assert fastest.text.startswith("No verdict, one run each: ")
    assert fastest.command == "ggbench compare 2 3 -r 4"


def test_bounds_of_all_runs_are_behind_the_answer() -> None:
    bounds: dict[str, Any] = {"w": (None, (1234.0, None)), "b": (None, (0.0, 20.0))}
    answer = comparison_answer(compare_quants([row(**bounds), row(**bounds)]))
    assert "> 1234" not in answer.markdown() and "\\> 1234" in answer.markdown(why=True)
