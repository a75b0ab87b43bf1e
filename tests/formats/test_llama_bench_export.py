import json

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.formats.importing import keep
from ggbench.formats.llama_bench import as_json, measured_row
from ggbench.formats.llama_bench_export import ExportedRun, export_run
from ggbench.formats.published_rows import rows_to_publish
from ggbench.machine.records import MachineReading
from ggbench.models.published.benches import benches_csv, parse_benches
from ggbench.runs.recording import ModelDescribed, PromptTiming, kind_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import SampleChunk
from ggbench.runs.stored import read_recording, read_run
from tests.fakes import machines, measured
from tests.formats.conftest import PEERS, ReadRuns


def exported(store: Store, run_id: int) -> ExportedRun:
    stored = store.load_run(run_id)
    return export_run(read_run(store, stored), read_recording(store, stored))


def put_decode(store: Store, *observed: object, setup: LlamaConfig | None = None) -> int:
    """A decode of two repetitions of 600 steps after 25 tokens, each of as many microseconds as its position."""
    head = replace(measured.start(), environment=machines.ENVIRONMENT, setup=setup or LlamaConfig())
    run = Run(head=head, outcome=Outcome.COMPLETED)
    chunks = [
        SampleChunk(f"decode/p25/b1/r{number}", 26, 0, tuple(n * 1000 for n in range(26, 626)), ())
        for number in range(2)
    ]
    chunks.append(SampleChunk("warmup/p25/b1/r0", 26, 0, (1, 2, 3), ()))
    return store.add(run, chunks, [(0, kind_of(type(each)), each) for each in observed])


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_imported_rows_are_written_as_llama_bench_wrote_them(form: str, store: Store, read: ReadRuns) -> None:
    kept = keep(store, read(f"llama-bench.{form}"))
    rows = [row for each in kept for row in exported(store, each.run_id).rows]

    written = as_json(rows)
    original = json.loads((PEERS / "llama-bench.json").read_text())

    entries = json.loads(written)
    assert list(entries[0])[:42] == list(original[0])[:42]
    if form == "json":
        by_test = sorted(original, key=lambda row: (row["n_gen"] != 0, row["n_depth"]))
        for entry, row in zip(entries, by_test, strict=True):
            assert entry | {"samples_ts": None} == row | {"samples_ts": None}
            assert entry["samples_ts"] == pytest.approx(row["samples_ts"], rel=1e-4)


def test_a_decode_is_one_row_for_all_its_steps_and_one_for_each_window(store: Store) -> None:
    run_id = put_decode(store)

    rows = exported(store, run_id).rows

    assert [row.test for row in rows] == ["tg600 @ d25", "tg128 @ d256"]
    assert rows[1].samples_ns == (sum(n * 1000 for n in range(257, 385)),) * 2
    assert rows[1].whole["avg_ns"] == sum(n * 1000 for n in range(257, 385))
    assert rows[1].whole["avg_ts"] == pytest.approx(128e9 / sum(n * 1000 for n in range(257, 385)), abs=1e-6)


def test_fields_say_what_the_run_knows_and_name_what_it_does_not(store: Store) -> None:
    setup = LlamaConfig(
        type_k="q8_0", flash_attn="on", kv_offload=False, threads=8, tensor_split=(3.0, 1.0), n_cpu_moe=2
    )
    run_id = put_decode(store, ModelDescribed("qwen2 0.5B Q4_K - Medium"), setup=setup)

    found = exported(store, run_id)

    whole = found.rows[0].whole
    assert whole["model_filename"] == "q4_k_m.gguf"
    assert whole["model_type"] == "qwen2 0.5B Q4_K - Medium"
    assert (whole["cpu_info"], whole["gpu_info"], whole["backends"]) == ("AMD EPYC 9B14", "NVIDIA RTX 4090", "CUDA")
    assert (whole["type_k"], whole["flash_attn"], whole["no_kv_offload"]) == ("q8_0", 1, True)
    assert (whole["tensor_split"], whole["n_cpu_moe"], whole["n_threads"]) == ("3.00/1.00", 2, 8)
    assert found.unknown == ("build_commit", "build_number")


def test_a_row_to_publish_names_device_model_and_build_and_nobody(store: Store) -> None:
    run_id = put_decode(store, PromptTiming(25, 5_000_000), ModelDescribed("qwen2 0.5B Q4_K - Medium"))
    run = read_run(store, store.load_run(run_id))

    (row,) = rows_to_publish(run, exported(store, run_id).rows)

    assert (row.device, row.count, row.backend) == ("rtx-4090", 1, "CUDA")
    assert (row.model, row.quant, row.test, row.n_depth) == ("qwen2 0.5B", "q4_k_m", "tg600", 25)
    assert row.tok_s == pytest.approx(600e6 / sum(range(26, 626)), abs=0.01) and row.stddev == 0.0
    text = benches_csv([replace(row, source="mine")])
    assert parse_benches(text) == [replace(row, source="mine")]
    assert not any(word in text for word in ("/cache", "q4_k_m.gguf", "GPU-"))


def test_a_file_that_a_llama_server_ran_is_published_by_its_architecture_and_name(store: Store) -> None:
    run_id = put_decode(store)
    run = read_run(store, store.load_run(run_id))
    subject = replace(run.subject, file="/home/me/Qwen3-30B-A3B-Q4_K_M.gguf", architecture="qwen3moe")
    (row,) = rows_to_publish(replace(run, head=replace(run.head, subject=subject)), exported(store, run_id).rows)
    assert (row.model, row.quant) == ("qwen3moe Qwen3 30B A3B", "q4_k_m")


def test_means_and_deviations_are_those_of_llama_bench() -> None:
    """They are of its own samples; its deviation of ns comes from integers and differs in the third digit."""
    for row in json.loads((PEERS / "llama-bench.json").read_text()):
        ours = measured_row({name: row[name] for name in ("n_prompt", "n_gen", "n_depth")}, row["samples_ns"]).whole
        for name in ("avg_ns", "stddev_ns", "avg_ts", "stddev_ts"):
            assert ours[name] == pytest.approx(row[name], abs=1, rel=0.01 if name == "stddev_ns" else 1e-5)


def test_what_llama_bench_tests_is_a_row_of_a_killed_decode_too(store: Store) -> None:
    """Prompts of one sequence and the steps so far; readings of the machine are no test."""
    run_id = put_decode(store, PromptTiming(25, 5_000_000), PromptTiming(25, 7_000_000), PromptTiming(64, 9, n_seqs=4))
    rows = exported(store, run_id).rows
    assert [(row.test, row.samples_ns) for row in rows[:-2]] == [("pp25", (5_000_000, 7_000_000))]
    (row,) = exported(store, measured.put_interrupted(store, measured.start(), n_gen=100)).rows
    assert (row.test, len(row.samples_ns)) == ("tg100 @ d25", 1)
    run = Run(head=replace(measured.start_search(), environment=machines.ENVIRONMENT), outcome=Outcome.COMPLETED)
    run_id = store.add(run, (), [(1, "machine_reading", MachineReading(1, None, None, None))])
    assert exported(store, run_id).rows == ()
