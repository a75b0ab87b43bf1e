from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ggbench.engines.config import LlamaSetup
from ggbench.engines.memory import Place
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.record import ContextResult, ContextSettings, Probe
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.machine.records import GpuProcess, MachineReading, Throttling
from ggbench.runs.observation import PromptTiming
from ggbench.runs.outcome import Outcome
from ggbench.runs.store import migrations
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run, read_recording, read_run
from tests.fakes.old_stores import SCRIPTS, build, schema, version, whole


def observed(store: Store, run_id: int, kind: type) -> tuple[object, ...]:
    return read_recording(store, store.load_run(run_id)).of(kind)


def test_every_version_has_a_file_to_be_tested_from() -> None:
    assert [script.name for script in SCRIPTS] == [
        f"store_v{number}.sql" for number in range(1, migrations.newest_version() + 1)
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_run_of_every_version_is_listed_and_read(path: Path, script: Path) -> None:
    build(script, path)
    with Store.open(path) as store:
        assert store.notices == ()
        stored = store.list_runs()
        kinds = {each.run_id: (each.kind, each.state) for each in stored}
        for each in stored:
            assert listed_run(each).head == read_run(store, each).head
            assert read_recording(store, each).head.settings
    expected = {1: ("decode", "completed"), 2: ("decode", "interrupted")}
    if script.stem >= "store_v3":
        expected |= {3: ("maxctx", "completed"), 4: ("maxctx", "interrupted")}
    if script.stem >= "store_v4":
        expected |= {5: ("prefill", "completed")}
    assert kinds == expected
    fresh = path.parent / "fresh.sqlite"
    Store.open(fresh).close()
    assert schema(path) == schema(fresh)
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_finished_decode_of_every_version_is_found_whole(path: Path, script: Path) -> None:
    build(script, path)
    with Store.open(path) as store:
        run = whole(store, 1)
        samples, all_samples = store.load_samples(1), store.load_samples(1, warmup=True)
        prompts, readings = observed(store, 1, PromptTiming), observed(store, 1, MachineReading)
    subject, setup, result = run.subject, run.head.setup, run.result
    assert (subject.model, subject.quant, subject.source, subject.file) == (
        "qwen1.5-0.5b", "q4_k_m", "twin", "/models/qwen1.5-0.5b-q4_k_m.gguf"
    )  # fmt: skip
    assert (subject.file_bytes, subject.n_params, subject.bpw) == (407_000_000, 619_570_176, 5.18)
    assert (subject.weight_bytes, subject.kv_bytes_per_token, subject.header_sha256) == (
        401_000_000, 98_304, "ab" * 32
    )  # fmt: skip
    assert isinstance(setup, LlamaSetup)
    assert (setup.n_ctx, setup.main_gpu, setup.tensor_split, setup.memory_limit_bytes) == (
        512,
        0,
        (0.25, 0.75),
        3 << 30,
    )
    assert run.head.settings == DecodeSettings(300)
    assert run.head.environment is not None and run.head.environment.gpus[0].bus_width_bits == 384
    assert (run.head.started_at, run.finished_at) == ("2026-11-20T15:00:01+00:00", "2026-11-20T15:10:00+00:00")
    assert run.head.command == "ggbench decode synth:qwen1.5-0.5b q4_k_m -n 300"
    assert (run.outcome, run.reason, run.run_id) == (Outcome.COMPLETED, "", 1)
    assert [(each.device, each.place, each.weight_bytes, each.kv_bytes) for each in run.memory.buffers] == [
        ("CPU", Place.HOST, 1, 2),
        ("CUDA0", Place.GPU, 5, 0),
    ]
    assert (run.memory.n_ctx, run.memory.flash_attn) == (512, True)
    assert isinstance(result, DecodeResult)
    assert (result.n_prompt, result.n_gen, result.prefill_ms, result.unsteady) == (25, 300, 130.5, "")
    assert result.fit is not None and result.latency is not None and result.limit is not None
    assert (result.fit.b_ms, result.fit.w_tokens_per_ms, result.fit.w_ci95) == (None, None, (1200.0, None))
    assert (result.latency.p50_ms, result.latency.tok_s, result.limit.b_ms) == (11.0, 90.9, 8.0)
    assert samples.series.tolist() == ["decode/p25/b1/r0"] * 3 + ["decode/p25/b1/r1"]
    assert samples.repeat.tolist() == [0, 0, 0, 1]
    assert samples.position.tolist() == [26, 27, 28, 26]
    assert samples.step_ns.tolist() == [11_000_000, 11_000_001, 11_000_002, 1 << 40]
    assert samples.sample_ns is not None and samples.sample_ns.tolist() == [50, 51, 52, 53]
    assert all_samples.step_ns.tolist()[:2] == [900, 901]
    assert prompts == (PromptTiming(25, 130_500_000),)
    assert len(readings) == (0 if script.stem == "store_v1" else 2)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_killed_run_of_every_version_is_reduced_from_what_it_had(path: Path, script: Path) -> None:
    build(script, path)
    with Store.open(path) as store:
        stored, run = store.load_run(2), whole(store, 2)
    assert (stored.kind, stored.n_samples, stored.result_json) == ("decode", 2, None)
    assert (run.subject.quant, run.subject.bpw, run.subject.weight_bytes) == ("q8_0", None, None)
    assert (run.outcome, run.reason, run.finished_at) == (Outcome.INTERRUPTED, "ggbench ended before the run did", None)
    assert isinstance(run.result, DecodeResult)
    assert run.result.n_gen == 2
    assert run.result.latency is not None and run.result.latency.p50_ms == pytest.approx(12.0, abs=1e-5)


@pytest.mark.parametrize("script", SCRIPTS[1:], ids=lambda script: script.stem)
def test_readings_are_read(path: Path, script: Path) -> None:
    build(script, path)
    with Store.open(path) as store:
        first, second = observed(store, 1, MachineReading)
        (alone,) = observed(store, 2, MachineReading)
        use = whole(store, 1).gpu_use
        moments = [each.at_ns for each in store.load_observations(1) if each.kind == "machine_reading"]
    assert isinstance(first, MachineReading) and isinstance(second, MachineReading)
    assert isinstance(alone, MachineReading)
    assert (first.cpu_share, second.cpu_share, alone.gpus) == (None, 0.5, ())
    assert (second.gpus[0].sm_clock_mhz, second.gpus[0].throttle) == (2001, ("sw_power_cap",))
    assert second.gpus[0].processes == (GpuProcess(911, "/usr/bin/desktop", 314572800), GpuProcess(4243, None, None))
    assert len(moments) == 2 and all(moments)
    assert use is not None
    assert (use.energy_per_token_mj, use.throttle) == (5120.5, (Throttling("sw_power_cap", 1),))


@pytest.mark.parametrize("script", SCRIPTS[2:], ids=lambda script: script.stem)
def test_searches_are_read(path: Path, script: Path) -> None:
    build(script, path)
    with Store.open(path) as store:
        run, killed = whole(store, 3), whole(store, 4)
        probes, asked = observed(store, 3, Probe), observed(store, 4, Probe)
    found = run.result
    assert isinstance(found, ContextResult)
    assert (found.max_n_ctx, found.first_fail_n_ctx, found.verified_by_decode) == (24_576, 24_832, True)
    assert (found.plan.planned_n_ctx, found.plan.theory_n_ctx) == (24_576, 27_904)
    assert (found.plan.budget_bytes, found.plan.ceiling_n_ctx) == (3 << 30, 2_147_483_392)
    assert found.plan.gpu_processes == (GpuProcess(911, "/usr/bin/desktop", 314_572_800),)
    assert found.probes == probes
    assert [(probe.kind, probe.n_ctx, probe.passed) for probe in found.probes] == [
        ("dry", 24_576, True),
        ("dry", 24_832, False),
        ("alloc", 24_576, True),
        ("alloc", 24_832, False),
        ("decode", 24_576, True),
    ]
    assert (run.subject.n_ctx_train, run.memory.n_ctx) == (32_768, 24_576)
    assert run.head.settings == ContextSettings()
    assert asked == probes[:4]
    assert (killed.outcome, killed.head.settings) == (Outcome.INTERRUPTED, ContextSettings())
    assert isinstance(killed.result, ContextResult)
    assert (killed.result.max_n_ctx, killed.result.first_fail_n_ctx) == (24_576, 24_832)
    assert not killed.result.verified_by_decode


BENCH_ROW = (
    "INSERT INTO runs SELECT 9, 'bench', model, 'q8_0', file, provenance, file_bytes, header_sha256, n_params, bpw,"
    " weight_bytes, kv_bytes_per_token, command, config, environment, started_at, finished_at, owner_pid,"
    " owner_started_at, state, n_samples, json_set(outcome_row, '$.max_n_ctx', {n_ctx}, '$.max_n_ctx_verified',"
    " json('true'), '$.max_n_ctx_reason', 'a ceiling'), NULL FROM runs WHERE id = 1"
)


def test_the_largest_context_of_a_bench_becomes_a_search(path: Path) -> None:
    """Under an id that no run had, so that the tables of both still join; the decode keeps its own."""
    build(version(3), path, BENCH_ROW.format(n_ctx=4096))
    with Store.open(path) as store:
        assert {run.run_id: run.kind for run in store.list_runs(quant="q8_0")} == {
            10: "maxctx", 9: "decode", 2: "decode"
        }  # fmt: skip
        decode, search = whole(store, 9), whole(store, 10)
    assert isinstance(decode.result, DecodeResult) and decode.result.fit is not None
    assert isinstance(search.result, ContextResult)
    assert (search.result.max_n_ctx, search.result.verified_by_decode, search.reason) == (4096, True, "a ceiling")
    assert search.subject == decode.subject
    assert isinstance(search.head.setup, LlamaSetup)
    assert (search.head.setup.n_ctx, search.head.setup.type_k) == (None, "f16")


def test_a_search_that_a_bench_had_stored_is_not_doubled(path: Path) -> None:
    build(version(3), path, BENCH_ROW.format(n_ctx=24_576), "UPDATE runs SET quant = 'q4_k_m' WHERE id = 9")
    with Store.open(path) as store:
        assert [run.run_id for run in store.list_runs(kind="maxctx")] == [4, 3]


def test_ids_are_kept_and_never_used_twice(path: Path) -> None:
    build(version(3), path, "UPDATE sqlite_sequence SET seq = 40", "DELETE FROM runs WHERE id = 3")
    with Store.open(path) as store:
        assert [run.run_id for run in store.list_runs()] == [4, 2, 1]
        head = whole(store, 1).head
        assert store.begin(head) == 41


def test_a_prefill_of_an_older_version_is_read(path: Path) -> None:
    build(
        version(3),
        path,
        "UPDATE runs SET kind = 'prefill', command = 'ggbench prefill m q4_k_m --lengths 1,25 --repeat 3',"
        """ outcome_row = json_set(outcome_row, '$.prefills',"""
        """ json('[{"n_prompt":25,"prefill_ms":130.5,"tok_s":191.5,"repeat":1}]')) WHERE id = 1""",
    )
    with Store.open(path) as store:
        run, prompts = whole(store, 1), observed(store, 1, PromptTiming)
    assert run.head.settings == PrefillSettings((1, 25), repeat=3)
    assert isinstance(run.result, PrefillResult)
    assert [(each.n_prompt, each.prefill_ms) for each in run.result.prefills] == [(25, 130.5)]
    assert run.result.limit is not None and run.result.limit.b_ms == 8.0
    assert prompts == (PromptTiming(25, 130_500_000),)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ggbench decode m q8_0 -n 500 --repeat 3", DecodeSettings(500, repeat=3)),
        ("ggbench decode 'unbalanced -n 500", DecodeSettings(500)),
        ("", DecodeSettings(300)),
        ("ggbench decode m q8_0 -n", DecodeSettings(300)),
    ],
)
def test_settings_come_from_the_command_that_reproduces_a_run(
    path: Path, command: str, expected: DecodeSettings
) -> None:
    quoted = command.replace("'", "''")
    build(version(3), path, f"UPDATE runs SET command = '{quoted}' WHERE id = 1")
    with Store.open(path) as store:
        assert whole(store, 1).head.settings == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--no-prove --cap-train", ContextSettings(prove=False, cap_train=True)),
        ("--reserve 1GiB", ContextSettings(reserve_bytes=1 << 30)),
    ],
)
def test_settings_of_a_search_come_from_its_command(path: Path, options: str, expected: ContextSettings) -> None:
    build(
        version(3),
        path,
        f"UPDATE runs SET command = command || ' {options}', certificate = json_set(certificate, '$.reserve_bytes',"
        f" {1 << 30}) WHERE id = 3",
    )
    with Store.open(path) as store:
        assert whole(store, 3).head.settings == expected


DAMAGED = ("not JSON", "[]", "", "7", '{"buffers": 7, "max_n_ctx": NaN, "fit": Infinity}', '{"buffers": [{}, 7]}')


@pytest.mark.parametrize("text", [*DAMAGED, '"\\udce9"', '{"reason": "\\udce9"}'])
@pytest.mark.parametrize("column", ["outcome_row", "certificate", "environment"])
def test_a_column_that_cannot_be_read_does_not_lose_its_run(path: Path, column: str, text: str) -> None:
    build(version(3), path, f"UPDATE runs SET {column} = '{text}'")
    with Store.open(path) as store:
        assert [run.run_id for run in store.list_runs()] == [4, 3, 2, 1]
        assert store.load_samples(1).step_ns.tolist() == [11_000_000, 11_000_001, 11_000_002, 1 << 40]
        for run_id in (1, 2, 3, 4):
            assert whole(store, run_id).subject.model == "qwen1.5-0.5b"


def test_a_setup_that_cannot_be_read_is_kept_and_explained(path: Path) -> None:
    build(version(3), path, "UPDATE runs SET config = 'not JSON' WHERE id = 1")
    with Store.open(path) as store:
        assert len(store.list_runs()) == 4
        with pytest.raises(StoreError, match="the setup of run 1 was written by another version"):
            whole(store, 1)
        assert store.load_run(1).setup_json == "not JSON"
        assert whole(store, 3).is_complete


def test_a_run_of_version_1_takes_observations(path: Path) -> None:
    build(version(1), path)
    reading = MachineReading(1, 0.25, 2, 3)
    with Store.open(path) as store:
        store.append_observations(1, [(1, "machine_reading", reading)])
        assert observed(store, 1, MachineReading) == (reading,)
        store.delete_run(1)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM observations WHERE run_id = 1").fetchone() == (0,)
    raw.close()


def test_the_migration_uses_no_record_of_ggbench() -> None:
    code = (
        "import sys, ggbench.runs.store.version_4; print(*(name for name in sys.modules if name.startswith('ggbench')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ended.stdout.split()) == {"ggbench", "ggbench.store", "ggbench.runs.store.version_4"}


@pytest.mark.parametrize(
    ("w", "b_ci95", "b_ms"),
    [
        ("205.0", "[10.9, 11.1]", 11.0),
        ("null", "[10.9, 11.1]", None),
        ("205.0", "[0.0, 30.0]", None),
        ("null", "null", None),
    ],
)
def test_a_stored_b_that_was_not_measured_is_withdrawn(path: Path, w: str, b_ci95: str, b_ms: float | None) -> None:
    fit = (
        f"json_set(result, '$.fit.w_tokens_per_ms', json('{w}'), '$.fit.b_ci95', json('{b_ci95}'), '$.fit.b_ms', 11.0)"
    )
    build(version(4), path, f"UPDATE runs SET result = {fit} WHERE id = 1")
    with Store.open(path) as store:
        run = whole(store, 1)
    assert isinstance(run.result, DecodeResult)
    assert run.result.fit is not None and run.result.latency is not None
    assert run.result.fit.b_ms == b_ms
    assert run.result.fit.b_ci95 == (None if b_ci95 == "null" else tuple(json.loads(b_ci95)))
    assert run.result.latency.tok_s == 90.9
