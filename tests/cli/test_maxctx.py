"""maxctx, from its words to a certificate, tables and exit codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending, TimedOut
from ggbench.engines.llama.config import LoadModel, MakeContext
from tests.cli.conftest import FakeMachine, Run
from tests.fakes.small_machine import SmallMachine

EDGE = 8192


@pytest.fixture
def searching(machine: FakeMachine) -> FakeMachine:
    machine.answers = {index: SmallMachine(2048, edge=EDGE).answer for index in range(20)}
    return machine


def test_a_certificate_as_json(ggbench: Run, searching: FakeMachine, tiny_twin: Path) -> None:
    ran = ggbench("maxctx", tiny_twin, "--memory-limit", "100MiB", "--beyond-train", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["schema"] == "ggbench.maxctx/2"
    assert (found["max_n_ctx"], found["first_fail_n_ctx"]) == (EDGE, EDGE + 256)
    assert found["verified_by_decode"] is True
    plan, probes = found["run"]["result"]["plan"], found["run"]["result"]["probes"]
    assert (plan["memory_bytes"], plan["memory_source"]) == (100 << 20, "given as --memory-limit")
    assert plan["budget_bytes"] == plan["memory_bytes"] - plan["reserve_bytes"]
    assert {probe["kind"] for probe in probes} == {"alloc", "decode"}
    assert f"-m {tiny_twin} -c {EDGE} " in found["llama_server"]
    assert f"n_ctx {EDGE:,} decodes at its end" in ran.err
    assert f"n_ctx {EDGE + 256:,} does not load: " in ran.err


def test_a_search_ends_at_the_training_context_and_says_that_more_would_fit(
    ggbench: Run, searching: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    words = ("maxctx", tiny_twin, "--memory-limit", "100MiB")
    found = ggbench(*words, "--json").json
    assert (found["max_n_ctx"], found["first_fail_n_ctx"], found["verified_by_decode"]) == (4096, None, True)
    (warning,) = found["run"]["result"]["warnings"]
    planned = f"{found['planned_n_ctx']:,}"
    assert warning == (
        f"the search ended at the 4,096 tokens that the model was trained on; {planned} would fit: --beyond-train"
    )
    (tmp_path / "tiny.Q8_0.gguf").hardlink_to(tiny_twin)
    (tmp_path / "tiny.Q4_0.gguf").hardlink_to(tiny_twin)
    several = " ".join(ggbench("maxctx", tmp_path, "tiny.Q8_0.gguf", "tiny.Q4_0.gguf", *words[2:]).out.split())
    assert several.count(warning) == 1, several
    assert ggbench(*words, "-c", 6000, "--json").json["max_n_ctx"] == 5888, "an n_ctx that is asked for is the ceiling"


def test_a_draft_is_loaded_with_the_model(
    ggbench: Run, searching: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(tiny_twin.read_bytes())
    words = ("maxctx", tiny_twin, "--memory-limit", "100MiB", "-np", "2", "-ctvd", "q8_0", "--draft", draft)
    ran = ggbench(*words)
    assert ran.code == 0, ran.err
    assert f"-np 2 -md {draft} --spec-type draft-simple -ctvd q8_0" in ran.out.splitlines()[1]
    _, _, real = searching.workers
    load, context, *_ = real.requests
    assert isinstance(load, LoadModel) and isinstance(context, MakeContext) and context.draft is not None
    assert load.draft == str(draft)
    assert (context.setup.n_outputs_max, context.setup.type_v) == (8, "f16")
    assert (context.draft.n_ctx, context.draft.type_v) == (context.setup.n_ctx, "q8_0")
    for more, said in ((("--mtp",), "--draft and --mtp exclude each other"), (("--draft", "nowhere.gguf"), "nowhere")):
        refused = ggbench(*words, *more)
        assert (refused.code in (2, 5), refused.out) == (True, "")
        assert said in refused.err
    searching.workers.clear()
    none = ggbench(*words[:-2], "--mtp")
    assert (none.code, "has no MTP layers" in none.err) == (5, True)


def test_every_quant_in_one_table(ggbench: Run, searching: FakeMachine, tiny_twin: Path, tmp_path: Path) -> None:
    (tmp_path / "model-q8_0.gguf").write_bytes(tiny_twin.read_bytes())
    (tmp_path / "model-q4_0.gguf").write_bytes(b"GGUF but not really")
    ran = ggbench("maxctx", tmp_path, "q8_0", "q4_0", "--memory-limit", "100MiB", "--beyond-train")
    assert ran.code == 0, ran.err
    assert "8,192" in ran.out
    assert "q4_0" in ran.out
    rows = {
        row["quant"]: row
        for row in ggbench("maxctx", tmp_path, "q8_0", "q4_0", "--beyond-train", "--json").json["rows"]
    }
    assert rows["q8_0"]["max_n_ctx"] == EDGE
    assert rows["q4_0"]["note"]


@pytest.mark.llama
@pytest.mark.parametrize("limit", ["100MiB", "200MiB"])
def test_what_is_planned_is_what_plan_prints(ggbench: Run, tiny_twin: Path, limit: str) -> None:
    options = ("--memory-limit", limit, "-t", "1", "--json")
    plan = ggbench("plan", tiny_twin, "--bandwidth", "20GB/s", *options).json
    found = ggbench("maxctx", tiny_twin, "--no-prove", *options).json
    assert found["planned_n_ctx"] == plan["rows"][0]["planned_n_ctx"]
    for name in ("budget_bytes", "memory_bytes", "memory_source", "reserve_bytes", "reserve_source"):
        assert found["run"]["result"]["plan"][name] == plan["machine"][name]


@pytest.mark.llama
def test_the_real_thing_end_to_end(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("maxctx", tiny_twin, "--memory-limit", "40MiB", "--beyond-train", "-t", "1", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["first_fail_n_ctx"] - found["max_n_ctx"] == 256
    assert found["verified_by_decode"] is True
    assert found["kv_bytes"] == found["max_n_ctx"] * found["kv_bytes_per_token"]
    assert found["run"]["head"]["environment"]["llama_cpp"]


def test_a_search_is_among_the_results(ggbench: Run, searching: FakeMachine, tiny_twin: Path) -> None:
    ran = ggbench("maxctx", tiny_twin, "--memory-limit", "100MiB", "--beyond-train", "--json")
    run_id = ran.json["run_id"]

    listed = ggbench("results")
    shown = ggbench("results", "show", run_id)
    again = ggbench("results", "show", run_id, "--json").json

    assert "n_ctx 8,192" in listed.out
    assert "n_ctx 8,192 works: decoded at its end" in " ".join(shown.out.split())
    kept = {name: again.pop(name) for name in ("schema", "readings")}
    stored, printed = again.pop("run"), ran.json
    assert again == {name: value for name, value in printed.items() if name not in ("schema", "run")}
    assert stored["result"] == printed["run"]["result"]
    assert kept["schema"] == ran.json["schema"] == "ggbench.maxctx/2"


def test_a_model_that_does_not_fit_is_one_error_and_a_document(
    ggbench: Run, searching: FakeMachine, tiny_twin: Path
) -> None:
    ran = ggbench("maxctx", tiny_twin, "--memory-limit", "1MiB", "--json", "--quiet")
    assert (ran.code, ran.json["outcome"]) == (3, "out_of_memory")
    assert [line.partition(":")[0] for line in ran.err.splitlines()] == ["Error", "Hint"]
    shown = ggbench("maxctx", tiny_twin, "--memory-limit", "1MiB")
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.count("does not fit") == 1


def test_a_search_that_is_too_slow_is_reported_also_when_quiet(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path
) -> None:
    small = SmallMachine(2048, edge=EDGE)

    def slow(request: Request) -> Iterator[protocol.Message | Ending]:
        if isinstance(request, MakeContext) and not small._dry:
            yield TimedOut(1.0)
        else:
            yield from small.answer(request)

    machine.answers = {0: slow, 1: slow}
    ran = ggbench("maxctx", tiny_twin, "--memory-limit", "100MiB", "--quiet")
    assert ran.code == 6
    (line,) = ran.err.splitlines()
    assert line.startswith("Error: ")
    assert "no output from the worker" in line


def test_failures_among_several_are_reported_also_when_quiet(
    ggbench: Run, searching: FakeMachine, tiny_twin: Path, tmp_path: Path
) -> None:
    names = "one-q8_0.gguf", "two-q8_0.gguf"
    for name in names:
        (tmp_path / name).write_bytes(tiny_twin.read_bytes())
    quiet = ggbench("maxctx", tmp_path, *names, "--memory-limit", "1MiB", "--quiet")
    assert quiet.code == 3
    assert [line.partition(":")[0] for line in quiet.err.splitlines()] == ["Error"] * 2
    assert "does not fit" in ggbench("maxctx", tmp_path, *names, "--memory-limit", "1MiB").err
    assert [run["state"] for run in ggbench("results", "--json").json["rows"]] == ["out_of_memory"] * 4
