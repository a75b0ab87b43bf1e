"""What people see of rows, runs and files, at the widths of real terminals."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers
from ggbench.experiments.decode.record import DecodeResult
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import BENCH
from ggbench.show.listed_runs import ListedRun
from ggbench.show.models import header_answer
from ggbench.show.quants import prefill_table, row_details, rows_table, runs_table
from ggbench.units import MIB
from tests.fakes.measured import search_of, with_decode, with_head, with_memory, with_run, with_subject
from tests.show.conftest import stored

Golden = Callable[[str, str], None]
Render = Callable[..., str]
HOSTILE = "\x1b[2J\x9b31m[bold]evil[/bold]\nrow\u202eright\udcff"


@pytest.mark.parametrize("width", [80, 120])
def test_narrow_table_keeps_what_matters(
    rows: tuple[QuantSummary, ...], render: Render, golden: Golden, width: int
) -> None:
    text = render(rows_table(rows, BENCH, width=width), width)
    golden(f"bench_{width}.txt", text)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "1513 ±26" in text
    assert "omitted for width" in text
    assert "model" in render(rows_table([], BENCH, width=width), width)


def test_what_all_rows_share_is_shown_once_below_a_narrow_table(
    unbounded: QuantSummary, twin: QuantSummary, render: Render, golden: Golden
) -> None:
    buffers = (replace(twin.memory.buffers[0], kv_bytes=unbounded.memory.kv_bytes or 0),)
    sweep = [
        with_subject(with_memory(with_decode(twin, unsteady=""), n_ctx=512, buffers=buffers), quant=quant)
        for quant in ("q4_0", "q2_k")
    ]
    text = render(rows_table([unbounded, *sweep], BENCH, width=80), 80)
    golden("bench_sweep_80.txt", text)
    assert text.count("qwen1.5-0.5b") == 1


@pytest.mark.parametrize("name", ["completed", "unbounded", "out_of_memory", "twin"])
def test_row_details_show_all_that_is_known(
    name: str, render: Render, golden: Golden, request: pytest.FixtureRequest
) -> None:
    golden(f"details_{name}.txt", render(row_details(request.getfixturevalue(name))))


def test_pages_that_repacked_copies_were_made_of_are_in_no_total(twin: QuantSummary, render: Render) -> None:
    mapped = DeviceBuffers("CPU_Mapped", weight_bytes=382 * MIB)
    buffers = (mapped, DeviceBuffers("CPU_REPACK", weight_bytes=140 * MIB), DeviceBuffers("CPU", kv_bytes=48 * MIB))
    text = render(row_details(with_memory(twin, buffers=buffers, tensor_bytes=382 * MIB)))
    lines = [line.split("  ") for line in text[text.index("Memory") :].splitlines()[4:8]]
    assert [[part.strip() for part in line if part.strip()] for line in lines] == [
        ["CPU_REPACK", "140.0 MiB", "140.0 MiB"], ["CPU", "48.0 MiB", "48.0 MiB"],
        ["never read again", "-140.0 MiB", "-140.0 MiB"], ["all", "382.0 MiB", "48.0 MiB", "430.0 MiB"],
    ]  # fmt: skip


def test_prefill_table(twin: QuantSummary, render: Render, golden: Golden) -> None:
    golden("prefills.txt", render(prefill_table(twin)))


def listed(run: Run) -> ListedRun:
    n_samples = run.result.n_gen if isinstance(run.result, DecodeResult) else 0
    return ListedRun(stored(run, n_samples=n_samples, result_json=None), run)


def test_runs_table(rows: tuple[QuantSummary, ...], render: Render, golden: Golden) -> None:
    runs = [listed(row.run) for row in rows]
    unfinished = replace(runs[0].run or rows[0].run, result=None, outcome=Outcome.INTERRUPTED, reason="still running")
    running = ListedRun(
        replace(runs[0].stored, run_id=45, state="running", finished_at=None, n_samples=512), unfinished
    )
    search = listed(replace(search_of(rows[0].run, 24_576), run_id=46))
    unreadable = ListedRun.of(replace(runs[0].stored, run_id=47, kind="perplexity"))
    runs += [running, search, unreadable]
    golden("runs.txt", render(runs_table(runs, width=200), 200) + render(runs_table(runs, width=80), 80))


@pytest.mark.parametrize("width", [80, 200])
def test_names_cannot_steer_the_terminal(
    out_of_memory: QuantSummary, model_file: ModelFile, render: Render, width: int
) -> None:
    row = with_subject(out_of_memory, model=HOSTILE, quant=HOSTILE, file=HOSTILE)
    row = with_head(with_run(row, reason=HOSTILE), command=HOSTILE)
    hostile_file = replace(model_file, name=HOSTILE, architecture=HOSTILE, metadata={HOSTILE: HOSTILE})
    shown = (
        rows_table([row], BENCH, width=width), row_details(row), prefill_table(row),
        header_answer(hostile_file, HOSTILE).rich(why=True),
    )  # fmt: skip
    for renderable in shown:
        text = render(renderable, width)
        assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "[bold]evil[/bold] row" in render(row_details(row), 200)
