"""`--engine llama-server=PATH` on the command line, with a program that loads no model."""

import shlex
from pathlib import Path

import pytest

from ggbench.engines.http.config import LlamaServerConfig
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from tests.cli.conftest import Run
from tests.fakes.llama_server import install, install_app


@pytest.fixture
def two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in fewer turns than a verdict needs, as each starts a program."""
    monkeypatch.setattr("ggbench.stats.turns.FEWEST_TURNS", 2)


@pytest.mark.parametrize("command", ["decode", "bench"])
def test_a_run_by_the_users_server_is_stored_with_its_build_and_can_be_repeated(
    command: str, tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    program = install(tmp_path)
    ran = ggbench(command, tiny_twin, "-n", "300", "-t", "1", "--engine", f"llama-server={program}", "--json")
    assert ran.code == 0, ran.err
    with Store.open() as store:
        run = read_run(store, store.load_run(1))
    assert isinstance(run.head.setup, LlamaServerConfig) and run.head.environment is not None
    assert (run.head.environment.llama_cpp, run.head.environment.llama_cpp_commit) == ("0.5.0-dev", "0c1e570")
    assert run.head.environment.build_flags == "GNU 12.2.0 for Linux x86_64"
    assert run.head.setup.command == str(program)
    assert f"--engine {shlex.quote(f'llama-server={program}')}" in ran.out
    assert run.result.latency.tok_s == pytest.approx(100)  # type: ignore[union-attr]


def test_a_gpu_that_only_the_users_program_sees_is_offered(
    tiny_twin: Path, tmp_path: Path, ggbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path).parent}:/usr/bin:/bin")
    offer = "llama-server lists llvmpipe (LLVM 15.0.6, 256 bits): --engine llama-server measures with it"
    asked = ("decode", tiny_twin, "-n", "64", "-t", "1")
    for words, is_offered in (((), True), (("-ngl", "0"), False), (("--engine", "llama-server"), False)):
        ran = ggbench(*asked, *words)
        assert (ran.code, offer in " ".join(ran.err.split())) == (0, is_offered), ran.err


@pytest.mark.parametrize(
    ("way", "code", "reason"),
    [
        ("not executable", 2, "is not executable"),
        ("another program", 2, "--help does not show the options of a llama-server"),
        ("other commands", 2, "llama serve --help does not show the options of a llama-server: error: unknown command"),
        ("no library", 6, "does not start: llama-server: error while loading shared libraries: libllama.so.0"),
        ("aborts", 6, "was killed by SIGABRT: free(): invalid pointer"),
        ("no memory", 3, "failed to allocate CPU buffer of size 47185920000"),
        ("silent", 6, "no output from the llama-server for 1 s"),
        ("dies", 6, "SIGSEGV"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    way: str, code: int, reason: str, tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    program = install_app(tmp_path, command="run") if way == "other commands" else install(tmp_path, way)
    if way in ("not executable", "another program"):
        program.write_text("#!/bin/sh\necho some usage\n")
        program.chmod(0o644 if way == "not executable" else 0o755)
    timeout = ("--timeout", "1") if way == "silent" else ()
    asked = ("decode", tiny_twin, "-n", "300", "-t", "1", "--quiet", *timeout)
    ran = ggbench(*asked, "--engine", f"llama-server={program}")
    lines = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    assert ran.code == code and len(lines) == 1 and reason in lines[0], ran.err


def test_an_option_that_the_server_refuses_is_named_with_what_was_given(
    tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    program = install(tmp_path, "unknown flag")
    ran = ggbench("decode", tiny_twin, "-n", "300", "-t", "1", "--engine", f"llama-server={program} --fast")
    assert ran.code == 2, ran.err
    assert "refuses an option: invalid argument: --fast\n" in ran.err
    assert f"Hint: --engine gives it --fast; its options: {program} --help\n" in ran.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["quality"], "llama-server cannot score"),
        (["forecast"], "llama-server cannot read a batch at a depth"),
        (["tune", "--for", "both"], "llama-server cannot read a batch at a depth"),
        (["maxctx", "--memory-limit", "1GiB"], "cannot limit the memory of llama-server"),
        (["maxctx", "-ngl", "0"], "cannot limit the memory of llama-server"),
    ],
)
def test_what_a_server_cannot_be_asked_is_refused_before_any_load(
    words: list[str], reason: str, tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    ran = ggbench(*words, tiny_twin, "--engine", f"llama-server={install(tmp_path)}")
    assert ran.code == 2 and reason in ran.err, ran.err


def test_the_largest_context_that_the_users_server_starts_with_is_found_and_proven(
    tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    engine = f"llama-server={install(tmp_path, 'at most 256')}"
    ran = ggbench("maxctx", tiny_twin, "-c", "512", "--engine", engine, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert (found["max_n_ctx"], found["first_fail_n_ctx"], found["verified_by_decode"]) == (256, 512, True)
    assert found["llama_server"].startswith(engine.removeprefix("llama-server=")), "with the user's own flags"
    tried = [(probe["n_ctx"], probe["kind"], probe["outcome"]) for probe in found["run"]["result"]["probes"]]
    assert (512, "alloc", "out_of_memory") in tried and tried[-1] == (256, "decode", "completed")


@pytest.mark.slow
def test_settings_are_tuned_by_starting_the_server_with_each(tiny_twin: Path, tmp_path: Path, ggbench: Run) -> None:
    program, log = tmp_path / "logged", tmp_path / "log"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{log}'\nexec '{install(tmp_path)}' \"$@\"\n")
    program.chmod(0o755)
    engine = f"llama-server={program} --step-ns 100000"
    ran = ggbench("tune", tiny_twin, "--depth", "64", "--within", "2s", "-t", "1", "--engine", engine, "--json")
    assert ran.code == 0, ran.err
    baseline, raced, *_ = ran.json["run"]["result"]["candidates"]
    assert (baseline["setup"]["flash_attn"], raced["setup"]["flash_attn"]) == ("auto", "off")
    starts = [line for line in log.read_text().splitlines() if line.startswith("-m ")]
    assert "-fa" not in starts[0] and any("-fa off" in start for start in starts[1:])


def test_bench_measures_several_engines_in_turns_and_names_the_faster(
    tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    program = install(tmp_path)
    engines = ["--engine", f"llama-server={program}", "--engine", f"llama-server={program} --step-ns 5000000"]
    ran = ggbench("bench", tiny_twin, "-n", "100", "-t", "1", *engines, "--json")
    assert ran.code == 0, ran.err
    with Store.open() as store:
        commands = [read_run(store, store.load_run(number)).head.setup.command for number in range(1, 9)]  # type: ignore[attr-defined]
    first, second = str(program), f"{program} --step-ns 5000000"
    assert commands == [first, second] * 2 + [second, first] * 2
    speed = next(each for each in ran.json["metrics"] if each["metric"] == "tok_s")
    assert speed["better"] == ["b"] and speed["versus"][1]["ratio"] == pytest.approx(2)
    assert [(each["name"], each["values"]) for each in ran.json["differences"]] == [("command", [first, second])]
    assert [(row["name"], row["run_ids"]) for row in ran.json["rows"]] == [
        ("llama-server", [1, 3, 6, 8]), ("llama-server --step-ns 5000000", [2, 4, 5, 7]),
    ]  # fmt: skip
    assert speed["values"] == pytest.approx([100, 200]) and speed["versus"][1]["n_turns"] == 4


@pytest.mark.usefixtures("two_turns")
def test_an_engine_that_fails_among_several_decides_the_exit_code(
    tiny_twin: Path, tmp_path: Path, ggbench: Run
) -> None:
    for name in ("sound", "broken"):
        (tmp_path / name).mkdir()
    sound, broken = install(tmp_path / "sound"), install(tmp_path / "broken", "no memory")
    engines = ["--engine", f"llama-server={sound}", "--engine", f"llama-server={broken}"]
    ran = ggbench("bench", tiny_twin, "-n", "100", "-t", "1", *engines)
    said = " ".join(ran.err.split())
    assert ran.code == 3, ran.err
    assert f"llama-server={broken}: 2 runs failed: " in said and "out of memory" in said
    assert ran.out == ""


def _two(program: Path, *steps_ns: int) -> list[str]:
    """Two --engine of one program, each with its time of a step."""
    return [word for ns in steps_ns for word in ("--engine", f"llama-server={program} --step-ns {ns}")]


def test_engines_that_cannot_run_are_refused_before_any_measures(tiny_twin: Path, tmp_path: Path, ggbench: Run) -> None:
    sound = install(tmp_path)
    (tmp_path / "old").mkdir()
    old = install(tmp_path / "old", "unknown flag")
    for bad, reason in (
        (f"{old} --fast", "refuses an option: invalid argument: --fast"),
        ("/bin/true", "/bin/true --help does not show"),
    ):
        ran = ggbench("bench", tiny_twin, *_two(sound, 1), "--engine", f"llama-server={bad}")
        assert (ran.code, reason in ran.err, "[1/" in ran.err) == (2, True, False), ran.err
    ran = ggbench("bench", tiny_twin, "q8_0", "q4_0", *_two(sound, 1, 2))
    assert (ran.code, "one quant at a time, not q8_0 and q4_0" in ran.err) == (2, True), ran.err


@pytest.mark.usefixtures("two_turns")
def test_each_depth_has_its_ratio(tiny_twin: Path, tmp_path: Path, ggbench: Run) -> None:
    engines = _two(install(tmp_path), 5_000_000, 10_000_000)
    asked = ("bench", tiny_twin, "-d", "0,256", "-n", "64", "-t", "1", *engines)
    ran = ggbench(*asked)
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    assert all(["at", depth, "tok/s", "200", "100", "0.50"] in rows for depth in ("0", "256")), ran.out


@pytest.mark.usefixtures("two_turns")
def test_prefill_measures_several_engines_in_turns(tiny_twin: Path, tmp_path: Path, ggbench: Run) -> None:
    program = install(tmp_path)
    asked = ("prefill", tiny_twin, "--lengths", "25,100", "-t", "1")
    ran = ggbench(*asked, *_two(program, 5_000_000, 10_000_000), "--json")
    assert ran.code == 0, ran.err
    with Store.open() as store:
        runs = [read_run(store, store.load_run(number)) for number in range(1, 5)]
    first, second = (f"{program} --step-ns {ns}" for ns in (5_000_000, 10_000_000))
    assert [run.head.setup.command for run in runs] == [first, second] * 2  # type: ignore[attr-defined]
    assert {run.head.settings.repeat for run in runs} == {1}  # type: ignore[attr-defined]
    found = {each["metric"]: each for each in ran.json["metrics"]}
    for metric in ("prefill_25", "prefill_100"):
        _, versus = found[metric]["versus"]
        assert versus["ratio"] == pytest.approx(0.5)


def test_several_engines_are_for_bench_and_prefill(tiny_twin: Path, tmp_path: Path, ggbench: Run) -> None:
    engines = ["--engine", "llama", "--engine", f"llama-server={install(tmp_path)}"]
    assert "bench and prefill alone" in ggbench("decode", tiny_twin, *engines).err
    assert "exclude --plot" in ggbench("bench", tiny_twin, "--plot", *engines).err
    assert "/no/such was not found" in ggbench("decode", tiny_twin, "--engine", "llama-server=/no/such").err
    assert "that ggbench loads itself" in ggbench("decode", "http://127.0.0.1:1", *engines[2:]).err
