"""A search for the largest context for people and for programs."""

from collections.abc import Callable

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe, SearchPlan
from ggbench.experiments.maxctx.show import PRESENTER
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
    plan = SearchPlan(
        planned_n_ctx=34_560, theory_n_ctx=40_000, budget_bytes=960 << 20, memory_bytes=1 << 30,
        memory_source="given as --memory-limit", reserve_bytes=64 << 20, reserve_source="for the process",
        free_bytes=22 << 30,
    )  # fmt: skip
    probes = (
        Probe(34_560, "dry", Outcome.COMPLETED, 0.1), Probe(34_560, "alloc", Outcome.COMPLETED, 0.1),
        Probe(34_816, "alloc", Outcome.OUT_OF_MEMORY, 0.1, missing_bytes=3 << 20),
        Probe(34_560, "decode", Outcome.OUT_OF_MEMORY, 0.1), Probe(34_304, "decode", Outcome.COMPLETED, 0.1),
    )  # fmt: skip
    found = MaxctxResult(plan=plan, max_n_ctx=34_304, first_fail_n_ctx=34_560, verified_by_decode=True, probes=probes)
    text = " ".join(render(PRESENTER.details(search(found)), 160).split())
    assert "works n_ctx 34,304; a batch of 512 tokens and one more were decoded at its end" in text
    assert "fails n_ctx 34,560 loads but fails when decoding: out of memory" in text
    assert "planned n_ctx 34,560, as in ggbench plan, by 1 dry allocation; 40,000 counting only weights" in text
    assert "memory 1.00 GiB (given as --memory-limit); 22.0 GiB were free before" in text
    assert "reserve 64.0 MiB (for the process)" in text
    assert "budget 960.0 MiB for weights, KV cache and compute buffers" in text
    assert "34,816 does not load: out of memory, 3.00 MiB short" in text
    narrow = render(PRESENTER.details(search(found)), 60)
    assert {"34,560", "34,816", "34,304"} <= {line.split()[0] for line in narrow.splitlines() if line.strip()}
    ended = replace(plan, ceiling_n_ctx=34_304, is_planned_higher=True)
    text = " ".join(render(PRESENTER.details(search(replace(found, plan=ended, first_fail_n_ctx=None))), 160).split())
    assert "fails not found: the search ended at its ceiling, 34,304" in text
    assert "planned n_ctx at least 34,560" in text
