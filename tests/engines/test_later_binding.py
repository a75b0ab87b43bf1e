"""A later llama-cpp-python, with fields removed, added and moved and another interface of ggml: the same sizes, or one
line.
"""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Decode, EstimateMemory, Source
from ggbench.engines.endings import Completed, Crashed, Failed
from ggbench.engines.events import Allocated, Event
from ggbench.engines.llama.build import describe_llama_build
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.process import WorkerProcess
from ggbench.errors import TESTED_BINDING, BindingFailed
from ggbench.machine.description import describe_machine
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.budget import described_budget
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from tests.fakes import later_binding

pytestmark = pytest.mark.llama

ROOT = Path(__file__).parents[2]
SETUP = LlamaConfig(n_ctx=512, threads=1)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LlamaEngine]]:
    engines = []

    def start(gone: str = "defrag_thold") -> LlamaEngine:
        monkeypatch.setenv("PYTHONPATH", str(Path(*later_binding.__path__)))
        monkeypatch.setenv("LATER_GONE", gone)
        engines.append(LlamaEngine(lambda: WorkerProcess(timeout_s=60)))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def sizes(events: list[Event]) -> Allocated:
    return [event for event in events if isinstance(event, Allocated)][-1]


def test_sizes_and_decoding_are_as_before(
    llama: LlamaEngine, later: Callable[..., LlamaEngine], tiny_twin: Path
) -> None:
    estimate = EstimateMemory(Source(tiny_twin), replace(SETUP, n_ctx=4096))
    engine = later()
    before, after = (list(each.run(estimate)) for each in (llama, engine))
    assert sizes(before[:-1]) == sizes(after[:-1])  # type: ignore[arg-type]
    assert [*engine.open(Source(tiny_twin), SETUP)][-1] == [*engine.run(Decode(8, 4))][-1] == Completed()


def test_a_plan_for_a_card_that_is_not_here_is_one_error_with_the_version_to_install(
    later: Callable[..., LlamaEngine],
) -> None:
    """Its structures are those of version 2: another one's would be read as garbage."""
    budget = described_budget(describe_machine(["rtx-3060"], None), reserve_bytes=None)
    targets = resolve_headers(parse_model("qwen2.5-0.5b", "q8_0", "q4_k_m"))
    with DryAllocator(later(), SETUP, budget.devices) as allocator, pytest.raises(BindingFailed) as refused:
        list(plan(targets, PlanRequest(budget, SETUP), allocator))
    assert "version 3 of ggml's backend interface, not 2" in refused.value.message
    assert refused.value.hint == f"pip install {TESTED_BINDING}"


def test_an_option_whose_field_is_gone_is_one_line(later: Callable[..., LlamaEngine], tiny_twin: Path) -> None:
    engine = later("swa_full load_mtp")
    assert [*engine.open(Source(tiny_twin), SETUP)][-1] == Completed()
    for field, stage in {"swa_full": "context", "mtp": "load"}.items():
        *_, ending = engine.open(Source(tiny_twin), replace(SETUP, **{field: True}))
        assert isinstance(ending, Failed)
        assert (ending.stage, "which the options need" in ending.message) == (stage, True)


def test_a_function_that_is_gone_is_named_with_the_version_to_install(
    later: Callable[..., LlamaEngine], tiny_twin: Path
) -> None:
    *_, ending = later("llama_n_ubatch").open(Source(tiny_twin), SETUP)
    assert isinstance(ending, Crashed)
    assert "has no attribute 'llama_n_ubatch'" in ending.reason
    hint = next(hint for words, hint in SETUP.failure_hints.items() if words in ending.reason)
    assert TESTED_BINDING in hint


def test_what_changed_is_described(later: Callable[..., LlamaEngine]) -> None:
    installed = describe_llama_build()
    assert (installed.new_fields, installed.gone_fields, installed.interface_problem) == ((), (), "")
    later()
    build = describe_llama_build()
    assert (set(build.new_fields), build.gone_fields) == ({"moe_cache_size"}, ("defrag_thold",))
    assert "not 2" in build.interface_problem
    assert build.devices == tuple(replace(each, device_id=None) for each in installed.devices)


def test_the_tested_binding_is_the_pinned_one() -> None:
    assert TESTED_BINDING in (ROOT / "scripts/constraints.txt").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert TESTED_BINDING.replace("==", ">=") in project["dependencies"]
