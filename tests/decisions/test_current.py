"""Which model to run, of the current ones in the catalog, and which instead of one that does not fit."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from ggbench.commands.output import Output
from ggbench.commands.picking import find_substitute
from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of
from ggbench.decisions.pick.decide import decide
from ggbench.decisions.pick.models import Competitors, of_entry, scores
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.contract import Engine, launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.sessions import known_sessions
from ggbench.gguf_file.layout import count_params
from ggbench.machine.description import describe_machine
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel
from ggbench.sizing.budget import described_budget, with_main_memory
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan_record import PlanRow

pytestmark = pytest.mark.llama
_T = TypeVar("_T")
SETUP = LlamaConfig(threads=8)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = launch_engine(LlamaConfig(threads=1))
    yield engine
    engine.close()


def request_for(machine: str, workload: str = "chat") -> PickRequest:
    gpus = [part for part in machine.split("+") if part[0].isalpha()]
    ram = next((part for part in machine.split("+") if not part[0].isalpha()), None)
    budget = with_main_memory(described_budget(describe_machine(gpus, ram), reserve_bytes=None))
    caches = caches_of([(name, name) for name in CACHE_TYPES], SETUP)
    return PickRequest(Needs(known_sessions()[workload]), budget, SETUP, caches)


def allocator_of(request: PickRequest, engine: Engine) -> DryAllocator:
    return DryAllocator(engine, setup_to_load(SETUP, request.budget), request.budget.devices)


def end_of(steps: Generator[tuple[Candidate, ...], None, _T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


def current_pick(machine: str, workload: str, engine: Engine) -> Pick:
    request = request_for(machine, workload)
    return end_of(decide(Competitors((), load_catalog().current), request, allocator_of(request, engine), None))


CURRENT = (
    ("rtx-4090", "chat", "→ pick", "qwen3.6-35b-a3b", {"dense": "qwen3.8-27b", "faster": "gpt-oss-20b"}),
    ("rtx-4060", "chat", "→ most capable", "qwen3.6-35b-a3b", {"dense": "qwen3.5-9b"}),
    ("rtx-3060", "coding", "→ most capable", "qwen3.6-35b-a3b", {"dense": "qwen3.5-9b", "faster": "gpt-oss-20b"}),
    ("strix-halo", "chat", "→ pick", "qwen3.5-122b-a10b", {"dense": "qwen3.8-27b", "faster": "qwen3.6-35b-a3b"}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "workload", "label", "pick", "beside"), CURRENT)
def test_the_most_capable_current_model_is_picked(
    engine: Engine, machine: str, workload: str, label: str, pick: str, beside: dict[str, str]
) -> None:
    """Theory leaves few to size; what is shown is comfortable, loses little, and has a score of its publisher.

    It is not called so beside a slower one with a higher score.
    """
    found = current_pick(machine, workload, engine)
    assert found.recommended is not None and found.comfortable
    assert found.recommended.row.model == pick
    assert {each.label: each.candidate.row.model for each in found.listed[1:]} == beside
    assert all(each.candidate.score_source for each in found.listed)
    assert found.listed[0].label == label
    assert found.n_models <= 6 < found.n_current == len(load_catalog().current)


@pytest.mark.parametrize(
    ("asked", "machine", "instead"),
    [
        ("qwen2.5-72b", "rtx-3090+8GiB@40GB/s", "qwen3.8-27b"),
        ("kimi-k2", "m4-max-48gb", ""),
    ],
)
def test_a_substitute_has_half_the_parameters_or_supersedes_it(
    engine: Engine, asked: str, machine: str, instead: str
) -> None:
    request = request_for(machine)
    n_params = count_params(load_catalog().model(asked).hyper)
    lacking = Candidate(PlanRow(asked, "q4_k_m", "catalog", n_params=n_params, fits=False), asked, max_n_ctx=0)
    pick = recommend([lacking], request.needs)
    assert find_substitute(pick, request, allocator_of(request, engine), Output(quiet=True)) == instead


def test_a_model_without_a_score_counts_as_a_scored_one_of_a_quarter_of_its_parameters() -> None:
    """Seed-OSS 36B is behind Qwen3.8 27B, and before Gemma 4 12B; a small one without a score counts nothing."""
    counted = scores(load_catalog())
    assert counted["qwen3.8-27b"] > counted["seed-oss-36b"] > counted["gemma-4-12b"]
    assert counted["qwen3.6-35b-a3b"] > counted["glm-4.5-air"] > counted["gpt-oss-20b"]
    assert counted["smollm3-3b"] == 0


def test_a_file_of_this_disk_takes_the_place_of_its_download(tiny_twin: Path, tmp_path: Path) -> None:
    path = tmp_path / "Qwen3.8-27B-UD-Q4_K_M.gguf"
    path.hardlink_to(tiny_twin)
    local = LocalModel("folder", path.stem, str(path), "ud-q4_k_m", (path,), path.stat().st_size)
    other = LocalModel("folder", "x", "org/x", "q8_0", (tmp_path / "x-q8_0.gguf",), 1)
    entry = load_catalog().model("qwen3.8-27b")
    here, download = of_entry(load_catalog(), entry, 89.2, ("q4_k_m", "q8_0"), (local, other)).variants
    assert (here.path, here.model, here.provenance, download.provenance) == (path, "qwen3.8-27b", "file", "catalog")
