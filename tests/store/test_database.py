from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from ggbench.errors import StoreError, UnknownName
from ggbench.records.context import Probe
from ggbench.records.machine import GpuReading, MachineReading
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.store.database import Store
from ggbench.store.runs import RunStart


def test_a_finished_run_comes_back_as_it_was_stored(path: Path, start: RunStart, row: Row) -> None:
    """Start, row, samples and prefills survive closing the file, unbounded and unknown values included."""
    with Store.open(path) as store:
        run_id = store.begin(start)
        store.append_prefill(run_id, 0, 25, 140_000_000, warmup=True)
        store.append_prefill(run_id, 0, 25, 130_500_000)
        store.append_samples(run_id, 0, 26, [11, 12, 13], [1, 2, 3])
        stored = store.finish(run_id, row)
    assert stored == dataclasses.replace(row, run_id=run_id)
    with Store.open(path) as store:
        run = store.load_run(run_id)
        prefills = store.load_prefills(run_id)
    assert (run.start, run.row, run.row_error, run.state) == (start, stored, "", "completed")
    assert run.n_samples == 3
    assert run.finished_at is not None and run.started_at <= run.finished_at
    assert [(timing.prefill_ns, timing.warmup) for timing in prefills] == [(140_000_000, True), (130_500_000, False)]


def test_chunks_join_by_repeat_and_position_with_the_warm_up_apart(store: Store, start: RunStart) -> None:
    """Every sample keeps its own position and repetition, however the chunks were cut and ordered."""
    run_id = store.begin(start)
    store.append_samples(run_id, 0, 26, [900, 901], [9, 9], phase="warmup")
    store.append_samples(run_id, 1, 26, np.array([300, 301], dtype=np.int64), np.array([3, 4]))
    store.append_samples(run_id, 0, 29, [203], [2])
    store.append_samples(run_id, 0, 26, [200, 201, 202], [5, 6, 7])
    samples = store.load_samples(run_id)
    assert samples.repeat.tolist() == [0, 0, 0, 0, 1, 1]
    assert samples.position.tolist() == [26, 27, 28, 29, 26, 27]
    assert samples.step_ns.tolist() == [200, 201, 202, 203, 300, 301]
    assert samples.sample_ns is not None and samples.sample_ns.tolist() == [5, 6, 7, 2, 3, 4]
    warmup = store.load_samples(run_id, phase="warmup")
    assert (warmup.position.tolist(), warmup.step_ns.tolist()) == ([26, 27], [900, 901])
    assert store.load_run(run_id).n_samples == 6


def test_samples_are_little_endian_int64_on_disk(path: Path, start: RunStart) -> None:
    """The documented format holds for whoever reads the file with another program, beyond 32 bits too."""
    with Store.open(path) as store:
        store.append_samples(store.begin(start), 0, 26, [1, 1 << 40])
    with sqlite3.connect(path) as raw:
        step_ns, sample_ns = raw.execute("SELECT step_ns, sample_ns FROM sample_chunks").fetchone()
    raw.close()
    assert step_ns == bytes.fromhex("01000000000000000000000000010000")
    assert sample_ns is None


def test_an_untimed_sampler_is_unknown_and_no_samples_are_no_error(store: Store, start: RunStart) -> None:
    """One chunk without sampler timings makes them unknown for the run; a run without steps has empty arrays."""
    run_id = store.begin(start)
    store.append_samples(run_id, 0, 26, [], [])
    empty = store.load_samples(run_id)
    assert len(empty.repeat) == len(empty.position) == len(empty.step_ns) == 0
    store.append_samples(run_id, 0, 26, [10], [1])
    store.append_samples(run_id, 0, 27, [10])
    assert store.load_samples(run_id).sample_ns is None


def test_steps_and_sampler_timings_have_to_pair_up(store: Store, start: RunStart) -> None:
    """A caller that mixes up its arrays is told, and nothing of them is stored."""
    run_id = store.begin(start)
    with pytest.raises(ValueError, match="2 steps but 1"):
        store.append_samples(run_id, 0, 26, [10, 11], [1])
    assert store.load_run(run_id).n_samples == 0


def test_the_same_chunk_twice_is_refused(store: Store, start: RunStart) -> None:
    """A doubled chunk would bend the fit without a sign of it."""
    run_id = store.begin(start)
    store.append_samples(run_id, 0, 26, [10, 11])
    with pytest.raises(StoreError, match="refused"):
        store.append_samples(run_id, 0, 26, [10, 11])
    assert store.load_samples(run_id).step_ns.tolist() == [10, 11]


def test_runs_are_listed_newest_first_and_filtered(store: Store, start: RunStart, row: Row) -> None:
    """Filters combine, the limit takes the newest, and the row comes along for a table."""
    first = store.begin(start)
    second = store.begin(dataclasses.replace(start, quant="q8_0", kind="prefill"))
    third = store.begin(dataclasses.replace(start, model="qwen2-7b"))
    store.finish(second, dataclasses.replace(row, outcome=Outcome.OUT_OF_MEMORY, reason="no room"))

    def listed(
        model: str | None = None,
        quant: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> list[int]:
        found = store.list_runs(model=model, quant=quant, kind=kind, state=state, limit=limit)
        return [run.run_id for run in found]

    assert listed() == [third, second, first]
    assert listed(limit=2) == [third, second]
    assert listed(model="qwen1.5-0.5b") == [second, first]
    assert listed(model="qwen1.5-0.5b", quant="q4_k_m") == [first]
    assert listed(kind="prefill") == listed(state="out_of_memory") == [second]
    assert listed(state="running") == [third, first]
    assert listed(model="'; DROP TABLE runs; --") == []
    ended = store.list_runs(state="out_of_memory")[0].row
    assert ended is not None and ended.reason == "no room"


def test_deleting_a_run_takes_its_samples_and_leaves_the_others(path: Path, start: RunStart, row: Row) -> None:
    """Nothing of the run stays in the file, and its id does not come back for another run."""
    with Store.open(path) as store:
        kept, deleted = store.begin(start), store.begin(start)
        for run_id in (kept, deleted):
            store.append_samples(run_id, 0, 26, [10, 11])
            store.append_prefill(run_id, 0, 25, 5)
            store.finish(run_id, row)
        store.delete_run(deleted)
        assert [run.run_id for run in store.list_runs()] == [kept]
        assert store.load_samples(kept).step_ns.tolist() == [10, 11]
        assert store.begin(start) > deleted
    with sqlite3.connect(path) as raw:
        counts = [raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("sample_chunks", "prefills")]
    raw.close()
    assert counts == [1, 1]


@pytest.mark.parametrize("run_id", [7, 0, -1, 1 << 70])
def test_a_run_that_is_not_there_is_an_unknown_name(store: Store, start: RunStart, row: Row, run_id: int) -> None:
    """Every call that names a run says so, also for a number that SQLite cannot hold."""
    with pytest.raises(UnknownName, match=f"no run named '{run_id}'"):
        store.load_run(run_id)
    with pytest.raises(UnknownName):
        store.load_samples(run_id)
    with pytest.raises(UnknownName):
        store.load_prefills(run_id)
    with pytest.raises(UnknownName):
        store.delete_run(run_id)
    with pytest.raises(UnknownName):
        store.append_samples(run_id, 0, 26, [10])
    with pytest.raises(UnknownName):
        store.append_prefill(run_id, 0, 25, 5)
    with pytest.raises(UnknownName):
        store.finish(run_id, row)


def test_a_run_left_by_an_error_is_interrupted_and_keeps_its_samples(path: Path, start: RunStart) -> None:
    """An exception on its way out of the block ends the runs that it left open."""
    with pytest.raises(KeyboardInterrupt), Store.open(path) as store:
        store.append_samples(store.begin(start), 0, 26, [10, 11])
        raise KeyboardInterrupt
    with Store.open(path) as store:
        (run,) = store.list_runs()
    assert (run.state, run.n_samples, run.row, run.row_error) == ("interrupted", 2, None, "")


def test_the_row_of_a_start_is_a_measured_row_without_the_measurements(start: RunStart, row: Row) -> None:
    """A trial that could not be loaded still shows its file, its bits per weight and how to try again."""
    nothing_measured = dataclasses.replace(
        row, n_prompt=None, n_gen=None, prefill_ms=None, fit=None, latency=None, limit=None, flash_attn=None, buffers=()
    )
    expected = dataclasses.replace(
        nothing_measured, outcome=Outcome.INTERRUPTED, reason="killed", header_sha256=start.header_sha256
    )
    assert start.as_row(Outcome.INTERRUPTED, "killed") == expected


def test_a_file_name_that_is_not_utf8_is_stored(store: Store, start: RunStart, row: Row) -> None:
    """Linux file names are bytes; an odd one does not cost a finished measurement."""
    odd = b"/models/caf\xe9.gguf".decode("utf-8", "surrogateescape")
    run_id = store.begin(dataclasses.replace(start, file=odd, command=f"ggbench decode {odd}"))
    store.finish(run_id, dataclasses.replace(row, file=odd))
    run = store.load_run(run_id)
    assert run.row is not None
    assert run.row.file == run.start.file == "/models/caf\\udce9.gguf"


def test_rows_of_other_versions_are_read_or_explained(path: Path, start: RunStart, row: Row) -> None:
    """A field that a newer ggbench added is passed over; a row that lost one is None with the reason."""
    with Store.open(path) as store:
        newer, older = store.begin(start), store.begin(start)
        store.finish(newer, row)
        store.finish(older, row)
    with sqlite3.connect(path) as raw:
        document = json.loads(raw.execute("SELECT outcome_row FROM runs WHERE id = ?", (newer,)).fetchone()[0])
        raw.execute("UPDATE runs SET outcome_row = ? WHERE id = ?", (json.dumps(document | {"from_2031": 1}), newer))
        del document["n_params"]
        raw.execute("UPDATE runs SET outcome_row = ? WHERE id = ?", (json.dumps(document), older))
    raw.close()
    with Store.open(path) as store:
        assert store.load_run(newer).row == dataclasses.replace(row, run_id=newer)
        summaries = {run.run_id: run for run in store.list_runs()}
        assert summaries[older].row is None
        assert "n_params" in summaries[older].row_error
        assert store.load_run(older).start == start


def test_readings_come_back_by_time(store: Store, start: RunStart) -> None:
    """One that a later ggbench wrote in another way costs no other, and a run without any is no error."""
    run_id, other = store.begin(start), store.begin(start)
    late, early = MachineReading(20, 0.5, 1, 2, (GpuReading(0, "A GPU", power_w=70.5),)), MachineReading(10, None, 1, 2)
    store.append_readings(run_id, [late, early])
    with sqlite3.connect(store.path) as raw:
        raw.execute('INSERT INTO readings (run_id, at_ns, reading) VALUES (?, 15, \'{"at_ns": "noon"}\')', (run_id,))
    raw.close()

    assert store.load_readings(run_id) == (early, late)
    assert store.load_readings(other) == ()
    with pytest.raises(UnknownName):
        store.append_readings(99, [early])


def test_a_search_comes_back_with_what_it_asked(path: Path, start: RunStart, row: Row) -> None:
    """Probes as they were appended, and the certificate that knows its run; deleting the run takes both."""
    probes = (
        Probe(512, "dry", Outcome.COMPLETED, 0.25, 1, 2),
        Probe(768, "alloc", Outcome.OUT_OF_MEMORY, 1.5, reason="failed to allocate"),
    )
    certificate = Certificate(
        model=start.model,
        quant=start.quant,
        file=start.file,
        provenance=start.provenance,
        outcome=Outcome.COMPLETED,
        max_n_ctx=512,
        probes=probes,
        config=start.config,
        environment=start.environment,
    )
    with Store.open(path) as store:
        run_id = store.begin(dataclasses.replace(start, kind="maxctx"))
        for number, probe in enumerate(probes):
            store.append_probe(run_id, number, probe)
        assert store.load_certificate(run_id) == (None, "")
        store.finish(run_id, row, certificate)
    with Store.open(path) as store:
        assert store.load_probes(run_id) == probes
        assert store.load_certificate(run_id) == (dataclasses.replace(certificate, run_id=run_id), "")
        store.delete_run(run_id)
        with pytest.raises(UnknownName):
            store.append_probe(run_id, 2, probes[0])
        with pytest.raises(UnknownName):
            store.load_probes(run_id)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM probes").fetchone() == (0,)
    raw.close()
