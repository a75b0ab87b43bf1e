"""decode, prefill, bench and demo, from their words to tables, documents and exit codes."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending, Failed
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.runs.store.database import Store
from tests.cli.conftest import FakeMachine, Others, Run
from tests.fakes.small_machine import SmallMachine


def test_a_machine_that_changed_is_warned_of(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = "the machine was suspended for 1:02"
    monkeypatch.setattr("ggbench.runs.recording.machine_changes", lambda *_: (change,))
    ran = ggbench("decode", tiny_twin, "--memory-limit", "4GiB")
    shown = ggbench("results", "show", 1, "--json")
    assert ran.code == 0, ran.err
    assert change in " ".join(ran.out.split())
    assert shown.json["run"]["head"]["environment"]["changes"] == [change]


def test_a_run_of_another_ggbench_is_warned_of_in_one_line(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ggbench("decode", tiny_twin, "-n", "20").code == 0
    with Store.open() as store:
        stored = store.load_run(1)
    monkeypatch.setattr(Store, "runs_elsewhere", lambda _self: ((stored, 4242),))
    ran = ggbench("decode", tiny_twin, "-n", "20")
    assert ran.code == 0
    (line,) = (line for line in ran.err.splitlines() if "another ggbench" in line)
    assert "(process 4242) is measuring run 1, decode of" in line


def test_a_busy_machine_is_said_before_anything_is_timed(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.commands.measuring.OthersWatch", lambda: Others(0.79))
    ran = ggbench("decode", tiny_twin, "-n", "20")
    assert ran.err.splitlines()[0] == "other programs use 79 % of the CPU: times on it will be marked !"


def test_speed_at_depths(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    ran = ggbench("decode", tiny_twin, "-d", "0,1k", "--json", "--quiet")
    assert [(each["n_depth"], each["n_gen"]) for each in ran.json["run"]["result"]["depths"]] == [(0, 128), (1024, 128)]
    assert " -n 128 --n-depth 0,1024 " in ran.json["command"]
    shown = ggbench("results", "show", "1").out
    assert ["1,024", "64.8", "1"] in [line.split() for line in shown.splitlines()]
    assert "64.8" in ggbench("bench", tiny_twin, "-d", "1024").out
    ran = ggbench("compare", "1", "2", "--json")
    found = [each["metric"] for each in ran.json["metrics"]]
    assert [key for key in found if key.startswith("tok_s_d")] == ["tok_s_d0", "tok_s_d1024"]
    rows = json.loads(ggbench("export", "1", "--format", "llama-bench").out)
    assert [(row["n_gen"], row["n_depth"]) for row in rows] == [(128, 0), (128, 1024)]


def test_a_cache_beyond_all_memory_is_refused_before_the_load(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path
) -> None:
    ran = ggbench("decode", tiny_twin, "-n", "2000000000")
    assert ran.code == 3
    error, hint = ran.err.splitlines()[-2:]
    assert error.startswith("Error: the KV cache of 2,000,000,") and hint.startswith("Hint: ")
    assert not machine.workers


def test_options_reach_llama_cpp(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    options = shlex.split(
        "-ngl 3 -ctk q8_0 -ctv Q4_0 -fa on -t 5 -b 64 -ub 32 -c 4096 -mg 1 -ts 3,1 --memory-limit 1GiB"
    )
    assert ggbench("decode", tiny_twin, "-n", "20", *options).code == 0
    load, context, *_ = machine.workers[0].requests
    loaded = LlamaConfig(n_gpu_layers=3, main_gpu=1, tensor_split=(3, 1), memory_limit_bytes=1 << 30)
    assert load == LoadModel(str(tiny_twin), loaded, n_threads=5)
    made = replace(
        loaded, n_ctx=4096, n_batch=64, n_ubatch=32, type_k="q8_0", type_v="q4_0", flash_attn="on", threads=5
    )
    assert context == MakeContext(made)


PLACEMENT = LlamaConfig(
    split_mode="row", cpu_moe=True, n_cpu_moe=3,
    override_tensor=(r"\.ffn_(up|down)_exps=CPU", "attn=CUDA0", "output=CPU"), threads_batch=6, mmap=False,
    mlock=True, kv_offload=False, swa_full=True,
)  # fmt: skip
SHORT = [
    "-sm", "row", "-cmoe", "-ncmoe", "3", "-ot", r"\.ffn_(up|down)_exps=CPU,attn=CUDA0", "-ot", "output=CPU", "-tb",
    "6", "--no-mmap", "--mlock", "-nkvo", "--swa-full",
]  # fmt: skip


def test_options_of_placement_are_passed_on_stored_and_reproduced(
    ggbench: Run, machine: FakeMachine, moe_twin: Path
) -> None:
    ran = ggbench("decode", "-n", "20", moe_twin, *SHORT, "--json")
    assert ran.code == 0, ran.err
    row = ran.json
    load, context, *_ = machine.workers[0].requests
    assert isinstance(load, LoadModel)
    assert load.setup == replace(PLACEMENT, kv_offload=True, swa_full=False, threads_batch=None)
    assert isinstance(context, MakeContext)
    assert replace(context.setup, n_ctx=None) == replace(PLACEMENT, threads=2)
    shown = ggbench("results", "show", row["run_id"], "--json").json["run"]["head"]["setup"]
    for name in ("split_mode", "cpu_moe", "n_cpu_moe", "threads_batch", "mmap", "mlock", "kv_offload", "swa_full"):
        assert shown[name] == getattr(PLACEMENT, name)
    assert shown["override_tensor"] == list(PLACEMENT.override_tensor)
    again = ggbench(*shlex.split(row["command"])[1:], "--json").json
    assert again["run"]["head"]["setup"] == row["run"]["head"]["setup"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["-ot", "blk"], "'blk' is not a tensor override"), (["-ot", "a=CPU,"], "'' is not a tensor override"),
        (["-ot", "blk(=CPU"], "'blk(' is not a regular expression"), (["-ncmoe", "-1"], "-1 is not in the range x>=0"),
    ],
)  # fmt: skip
def test_bad_placement_is_a_usage_error(ggbench: Run, tiny_twin: Path, options: list[str], what: str) -> None:
    ran = ggbench("decode", tiny_twin, *options)
    assert ran.code == 2
    error, hint = ran.err.splitlines()
    assert what in error
    assert hint.startswith("Hint: ")


@pytest.mark.parametrize("view", ["quiet", "lines", "bar"])
def test_a_search_is_shown_as_it_goes(
    ggbench: Run, machine: FakeMachine, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: view == "bar")
    monkeypatch.setenv("COLUMNS", "400")  # a bar has one line, which begins with the path
    machine.answers = dict.fromkeys(range(3), SmallMachine(2048, edge=2048).answer)
    words = ["maxctx", tiny_twin, "--memory-limit", "100MiB", "--json"]
    ran = ggbench(*words, *(["--quiet"] if view == "quiet" else []))
    assert (ran.code, ran.json["max_n_ctx"]) == (0, 2048), ran.err
    assert ("n_ctx 2,048 decodes at its end" in ran.err) == (view != "quiet")


def test_text_from_a_file_does_not_steer_the_terminal(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    def refuse(_request: Request) -> Iterator[protocol.Message | Ending]:
        yield Failed("load", "unknown model architecture: '\x1b[2Jx'")

    machine.answers = {0: refuse}
    ran = ggbench("decode", tiny_twin, "-n", "300")
    assert ran.code == 6
    assert "\x1b" not in ran.out + ran.err


@pytest.mark.llama
def test_the_real_thing_end_to_end(ggbench: Run, tiny_twin: Path) -> None:
    ran = ggbench("decode", tiny_twin, "-n", "300", "-t", "1", "--bandwidth", "20GB/s", "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    assert document["outcome"] == "completed"
    assert document["provenance"] == "twin"
    assert (document["b_ratio"] is None) == (document["b_ms"] is None)
    assert document["run"]["result"]["limit"]["bandwidth_source"] == "given"
    assert document["run"]["head"]["environment"]["llama_cpp_python"]
    assert ggbench("results", "show", str(document["run_id"]), "--json").json["outcome"] == "completed"


def test_the_command_that_measures_again_is_whole(ggbench: Run, machine: FakeMachine, tiny_twin: Path) -> None:
    """It is one line of any length, with nothing else on it, so that it can be copied from a pipe."""
    ran = ggbench("decode", tiny_twin, "-n", "300", "--memory-limit", "2GiB", "--why")
    lines = ran.out.splitlines()
    again = lines[lines.index("Again") + 1]
    assert again.startswith("ggbench decode ")
    assert again.rstrip().endswith(" -n 300 --threads 2 --memory-limit 2GiB")
    assert str(tiny_twin) in again
