"""A search for the largest context for people and for programs."""

from collections.abc import Callable

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.maxctx.record import (
    MaxctxResult,
    MaxctxSettings,
    Probe,
    SearchPlan,
    outcome_text,
)
from ggbench.experiments.maxctx.show import PRESENTER
from ggbench.machine.records import GpuProcess
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead


def search(result: MaxctxResult, memory: Memory | None = None, **changes: object) -> Run:
    head = RunHead(
        kind="maxctx", subject=Subject(model="m", quant="q4_k_m", source="file", file="f"), setup=LlamaConfig(),
        settings=MaxctxSettings(),
    )  # fmt: skip
    run = Run(head=head, outcome=Outcome.COMPLETED, memory=memory or Memory(n_ctx=result.max_n_ctx), result=result)
    return replace(run, **changes)


def test_a_certificate_says_what_it_rests_on(render: Callable[..., str]) -> None:
    desktop = GpuProcess(911, "/opt/desk\x1b[2Jtop", 300 << 20)
    plan = SearchPlan(
        planned_n_ctx=34_560, budget_bytes=960 << 20, memory_bytes=1 << 30, memory_source="given as --memory-limit",
        gpu_processes=(desktop,),
    )  # fmt: skip
    probes = (
        Probe(34_560, "dry", Outcome.COMPLETED, 0.1), Probe(34_560, "alloc", Outcome.COMPLETED, 0.1),
        Probe(34_816, "alloc", Outcome.OUT_OF_MEMORY, 0.1, missing_bytes=3 << 20),
        Probe(34_560, "decode", Outcome.OUT_OF_MEMORY, 0.1), Probe(34_304, "decode", Outcome.COMPLETED, 0.1),
    )  # fmt: skip
    found = MaxctxResult(plan=plan, max_n_ctx=34_304, first_fail_n_ctx=34_560, verified_by_decode=True, probes=probes)
    buffers = DeviceBuffers("CUDA0", MemoryKind.GPU, weight_bytes=2 << 30, kv_bytes=512 << 20)
    memory = Memory(buffers=(buffers,), n_ctx=34_304, peak_bytes=5 << 30)
    answer = PRESENTER.details(search(found, memory))
    assert render(answer.rich(), 80).splitlines() == [
        "m q4_k_m: n_ctx 34,304 works: decoded at its end. 34,560 loads but fails when",
        "decoding: out of memory.",
        "llama-server -m f -c 34304 -ngl 999 -np 1",
        "",
        "planned 34,560; peak 5.00 GiB of 1.00 GiB; 2 allocations in 0.50 s",
        "",
        "Other programs use GPU memory: desk[2Jtop (pid 911, 300.0 MiB).",
    ]
    text = " ".join(render(answer.rich(why=True), 160).split())
    for said in (
        "memory 1.00 GiB (given as --memory-limit)", "for model and context 960.0 MiB",
        "does not load: 3.00 MiB short",
        "CUDA0 2.00 GiB 512.0 MiB", "peak resident 5.00 GiB",
    ):  # fmt: skip
        assert said in text
    narrow = render(answer.rich(why=True), 60)
    assert {"34,560", "34,816", "34,304"} <= {line.split()[0] for line in narrow.splitlines() if line.strip()}
    ended = replace(found, plan=replace(plan, ceiling_n_ctx=34_304), first_fail_n_ctx=None)
    assert PRESENTER.answer(search(ended)).endswith("decoded at its end.")


def test_a_search_answers_in_one_line() -> None:
    """Proven or not, cut short or without any context that works."""
    made = (Probe(512, "alloc", Outcome.COMPLETED, 0.1), Probe(512, "decode", Outcome.COMPLETED, 0.1))
    proven = search(MaxctxResult(max_n_ctx=8192, verified_by_decode=True, probes=made))
    assert PRESENTER.ending(proven) == "n_ctx 8,192 works: decoded at its end."
    assert PRESENTER.short_answer(proven) == "n_ctx 8,192"
    assert PRESENTER.short_answer(search(MaxctxResult(max_n_ctx=8192))) == "n_ctx ~8,192"
    stopped = search(MaxctxResult(max_n_ctx=8192, probes=made[:1] * 2), outcome=Outcome.CANCELLED)
    assert PRESENTER.answer(stopped) == "n_ctx 8,192 loads; not proven by a decode."
    too_large = search(MaxctxResult(), outcome=Outcome.OUT_OF_MEMORY, reason="m does not fit")
    assert PRESENTER.ending(too_large) == "out of memory: m does not fit"


def test_each_probe_says_whether_it_loads_or_decodes_and_why_not() -> None:
    out = Outcome.OUT_OF_MEMORY
    for probe, text in (
        (Probe(10_752, "alloc", Outcome.COMPLETED, 0.123), "loads"),
        (Probe(12_032, "alloc", out, 0.13, missing_bytes=3 << 20), "does not load: 3.00 MiB short"),
        (Probe(4_608, "alloc", out, 0.85, device="device 0 of h:1"), "does not load: out of memory on device 0 of h:1"),
        (Probe(34_560, "decode", out, 5.02), "loads but fails when decoding: out of memory"),
        (Probe(512, "decode", Outcome.CRASHED, 1.0, reason="ended by SIGSEGV"), "llama.cpp crashed, ended by SIGSEGV"),
        (Probe(512, "alloc", Outcome.FAILED, 1.0), "does not load: llama.cpp refused"),
        (Probe(512, "decode", Outcome.TIMED_OUT, 60.0), "is not known to work: timed out"),
    ):
        assert text in outcome_text(probe, "llama.cpp")
