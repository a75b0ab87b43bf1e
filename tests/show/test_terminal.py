"""What people see of rows, runs and files, at the widths of real terminals."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers
from ggbench.experiments.decode.record import DecodeResult
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.run import Run
from ggbench.show.listed_runs import ListedRun, results_answer
from ggbench.show.models import header_answer
from ggbench.show.presenter import presenter_of
from ggbench.show.quants import bench_answer
from ggbench.units import MIB
from tests.fakes.measured import search_of, with_head, with_memory, with_run, with_subject
from tests.show.conftest import stored

Golden = Callable[[str, str], None]
Render = Callable[..., str]
HOSTILE = "\x1b[2J\x9b31m[bold]evil[/bold]\nrow\u202eright\udcff"


@pytest.mark.parametrize("width", [60, 100, 200])
def test_a_bench_is_an_answer_and_a_table(rows: tuple[Run, ...], render: Render, golden: Golden, width: int) -> None:
    text = render(bench_answer(rows), width)
    golden(f"bench_{width}.txt", text)
    assert width < 100 or len(text.splitlines()) <= 14


@pytest.mark.parametrize("name", ["completed", "unbounded", "out_of_memory", "twin"])
def test_a_run_is_an_answer_and_all_that_is_known_is_behind_it(
    name: str, render: Render, golden: Golden, request: pytest.FixtureRequest
) -> None:
    summary: Run = request.getfixturevalue(name)
    answer = presenter_of("decode").details(summary)
    assert len(render(answer, 100).splitlines()) <= 14
    golden(f"details_{name}.txt", render(answer.rich(why=True), 100))


def test_pages_that_repacked_copies_were_made_of_are_in_no_total(twin: Run) -> None:
    mapped = DeviceBuffers("CPU_Mapped", weight_bytes=382 * MIB)
    buffers = (mapped, DeviceBuffers("CPU_REPACK", weight_bytes=140 * MIB), DeviceBuffers("CPU", kv_bytes=48 * MIB))
    memory = with_memory(twin, buffers=buffers, tensor_bytes=382 * MIB).memory
    assert memory.total_bytes == 430 * MIB


def test_a_prefill_is_an_answer_and_a_table(prompts: Run, render: Render, golden: Golden) -> None:
    golden("prefills.txt", render(presenter_of("prefill").details(prompts), 100))


def listed(run: Run) -> ListedRun:
    n_samples = run.result.n_gen if isinstance(run.result, DecodeResult) else 0
    return ListedRun(stored(run, n_samples=n_samples, result_json=None), run)


def test_runs_table(rows: tuple[Run, ...], render: Render, golden: Golden) -> None:
    runs = [listed(row) for row in rows]
    unfinished = replace(runs[0].run or rows[0], result=None, outcome=Outcome.INTERRUPTED, reason="still running")
    running = ListedRun(
        replace(runs[0].stored, run_id=45, state="running", finished_at=None, n_samples=512), unfinished
    )
    search = listed(replace(search_of(rows[0], 24_576), run_id=46))
    unreadable = ListedRun.of(replace(runs[0].stored, run_id=47, kind="perplexity"))
    runs += [running, search, unreadable]
    answer = results_answer(runs, 12)
    golden("runs.txt", render(answer.rich(why=True), 200) + render(answer, 80))


@pytest.mark.parametrize("width", [80, 200])
def test_names_cannot_steer_the_terminal(out_of_memory: Run, model_file: ModelFile, render: Render, width: int) -> None:
    row = with_subject(out_of_memory, model=HOSTILE, quant=HOSTILE, file=HOSTILE)
    row = with_head(with_run(row, reason=HOSTILE), command=HOSTILE)
    hostile_file = replace(model_file, name=HOSTILE, architecture=HOSTILE, metadata={HOSTILE: HOSTILE})
    details = presenter_of("decode").details(row).rich(why=True)
    shown = (
        bench_answer([row]), details, header_answer(hostile_file, HOSTILE).rich(why=True),
    )  # fmt: skip
    for renderable in shown:
        text = render(renderable, width)
        assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "[bold]evil[/bold] row" in render(details, 200)
