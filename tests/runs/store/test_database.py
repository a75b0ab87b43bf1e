import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.record import Probe
from ggbench.machine.records import GpuReading, MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.recording import PromptTiming
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import SampleChunk, StoredRun, decode
from tests.fakes.measured import put_run, start

SERIES, NEXT, WARMUP = "decode/p25/b1/r0", "decode/p25/b1/r1", "warmup/p25/b1/r0"


def assert_is_stored(stored: StoredRun, run: Run) -> None:
    """Every record of the run, those of its kind by their JSON."""
    head = run.head
    assert (stored.kind, stored.engine, stored.command) == (head.kind, head.setup.engine, head.command)
    assert (stored.subject, stored.environment) == (head.subject, head.environment)
    assert decode(stored.setup_json, LlamaConfig) == (head.setup, "")
    assert decode(stored.settings_json, DecodeSettings) == (head.settings, "")
    assert (stored.state, stored.reason) == (run.outcome.value, run.reason)
    assert (stored.memory, stored.gpu_use) == (run.memory, run.gpu_use)
    assert stored.result_json is not None
    assert decode(stored.result_json, DecodeResult) == (run.result, "")


def test_a_finished_run_comes_back_as_it_was_stored(path: Path, head: RunHead, run: Run) -> None:
    with Store.open(path) as store:
        run_id = store.begin(head)
        running = store.load_run(run_id)
        assert (running.state, running.is_finished, running.memory, running.result_json) == (
            "running", False, None, None
        )  # fmt: skip
        store.append_samples(run_id, SERIES, 26, [11, 12, 13], [1, 2, 3])
        store.finish(run_id, run)
    with Store.open(path) as store:
        stored = store.load_run(run_id)
    assert_is_stored(stored, run)
    assert stored.n_samples == 3
    assert stored.finished_at is not None and stored.started_at <= stored.finished_at


def test_a_run_that_was_made_elsewhere_is_added_whole(path: Path, run: Run) -> None:
    imported = replace(
        run, head=replace(run.head, started_at="2026-01-02T03:04:05+00:00"), finished_at="2026-01-02T03:05:05+00:00"
    )
    chunks = (SampleChunk(SERIES, 26, 7, (11, 12), (1, 2)), SampleChunk(WARMUP, 26, 6, (90,), ()))
    with Store.open(path) as store:
        run_id = store.add(imported, chunks, [(5, "prompt_timing", PromptTiming(25, 3))])
        other = store.add(run)
    with Store.open(path) as store:
        stored = store.load_run(run_id)
        assert_is_stored(stored, imported)
        assert (stored.started_at, stored.finished_at) == (imported.head.started_at, imported.finished_at)
        assert (stored.n_samples, tuple(store.load_chunks(run_id))) == (2, chunks)
        (observation,) = store.load_observations(run_id)
        assert (observation.at_ns, decode(observation.body_json, PromptTiming)) == (5, (PromptTiming(25, 3), ""))
        assert store.load_run(other).started_at
        store.delete_run(run_id)


def test_a_run_that_cannot_be_added_whole_is_not_added(store: Store, run: Run) -> None:
    """Two chunks at one position would bend the fit."""
    with pytest.raises(StoreError, match="UNIQUE constraint failed"):
        store.add(run, [SampleChunk(SERIES, 26, 0, (11,), ()), SampleChunk(SERIES, 26, 0, (12,), ())])
    assert store.list_runs() == ()


def test_chunks_join_by_series_and_position_with_the_warm_up_apart(store: Store, head: RunHead) -> None:
    run_id = store.begin(head)
    store.append_samples(run_id, WARMUP, 26, [900, 901], [9, 9])
    store.append_samples(run_id, NEXT, 26, np.array([300, 301], dtype=np.int64), np.array([3, 4]))
    store.append_samples(run_id, SERIES, 29, [203], [2], at_ns=50)
    store.append_samples(run_id, SERIES, 26, [200, 201, 202], [5, 6, 7], at_ns=40)
    samples = store.load_samples(run_id)
    assert list(samples.lengths.items()) == [(NEXT, 2), (SERIES, 4)]
    assert samples.position.tolist() == [26, 27, 26, 27, 28, 29]
    assert samples.step_ns.tolist() == [300, 301, 200, 201, 202, 203]
    assert tuple(store.load_chunks(run_id)) == (
        SampleChunk(WARMUP, 26, 0, (900, 901), (9, 9)), SampleChunk(NEXT, 26, 0, (300, 301), (3, 4)),
        SampleChunk(SERIES, 26, 40, (200, 201, 202), (5, 6, 7)), SampleChunk(SERIES, 29, 50, (203,), (2,)),
    )  # fmt: skip
    assert store.load_run(run_id).n_samples == 6


def test_samples_are_little_endian_on_the_disk(store: Store, head: RunHead) -> None:
    """The format is documented, for whoever reads the file with another program."""
    run_id = store.begin(head)
    store.append_samples(run_id, SERIES, 26, [], [])
    assert (store.load_samples(run_id).lengths, len(store.load_samples(run_id).step_ns)) == ({}, 0)
    store.append_samples(run_id, SERIES, 26, [1, 1 << 40], [2, 3])
    store.append_samples(run_id, SERIES, 28, [4])
    with contextlib.closing(sqlite3.connect(store.path)) as raw:
        first, second = raw.execute("SELECT step_ns, sampler_ns FROM samples").fetchall()
    assert first[0] == bytes.fromhex("01000000000000000000000000010000")
    assert second == (bytes.fromhex("0400000000000000"), None)
    assert store.load_samples(run_id).step_ns.tolist() == [1, 1 << 40, 4]


def test_observations_come_back_in_the_order_in_which_they_were_made(store: Store, head: RunHead) -> None:
    run_id, other = store.begin(head), store.begin(head)
    reading = MachineReading(20, 0.5, 1, 2, (GpuReading(0, "A GPU", power_w=70.5),))
    probe = Probe(768, "alloc", Outcome.OUT_OF_MEMORY, 1.5, reason="failed to allocate")
    store.append_observations(run_id, [(20, "machine_reading", reading), (10, "probe", probe)])
    store.append_observations(run_id, [])
    store.append_observations(run_id, [(30, "prompt_timing", PromptTiming(25, 3, 2))])
    found = tuple(store.load_observations(run_id))
    assert [(each.at_ns, each.kind) for each in found] == [
        (20, "machine_reading"),
        (10, "probe"),
        (30, "prompt_timing"),
    ]
    types: tuple[type[object], ...] = (MachineReading, Probe, PromptTiming)
    assert [decode(each.body_json, kind)[0] for each, kind in zip(found, types, strict=True)] == [
        reading, probe, PromptTiming(25, 3, 2)
    ]  # fmt: skip
    assert not list(store.load_observations(other))


def test_runs_are_listed_newest_first_and_filtered(store: Store, head: RunHead, run: Run) -> None:
    first = store.begin(head)
    second = store.begin(replace(head, subject=replace(head.subject, quant="q8_0"), kind="prefill"))
    third = store.begin(replace(head, subject=replace(head.subject, model="qwen2-7b")))
    ended = replace(run, head=replace(run.head, subject=replace(head.subject, quant="q8_0"), kind="prefill"))
    store.finish(second, replace(ended, outcome=Outcome.OUT_OF_MEMORY, reason="no room", result=None))

    def listed(model: str | None = None, limit: int = -1) -> list[int]:
        return [stored.run_id for stored in store.list_runs(model=model, limit=limit)]

    assert listed() == [third, second, first]
    assert listed(limit=2) == [third, second]
    assert listed("qwen1.5-0.5b") == [second, first]
    assert listed("qwen1.5-0.5b", limit=1) == [second]
    assert listed("'; DROP TABLE runs; --") == []
    assert (store.load_run(second).reason, store.load_run(second).result_json) == ("no room", None)


def test_the_newest_runs_are_found(store: Store, head: RunHead) -> None:
    for _ in range(3):
        store.begin(head)
    assert [run_id for run_id, *_ in store.run_states(2)] == [3, 2]


def test_deleting_a_run_takes_what_it_has_and_leaves_the_others(path: Path, head: RunHead, run: Run) -> None:
    with Store.open(path) as store:
        kept, deleted = store.begin(head), store.begin(head)
        for run_id in (kept, deleted):
            store.append_samples(run_id, SERIES, 26, [10, 11])
            store.append_observations(run_id, [(1, "prompt_timing", PromptTiming(25, 5))])
            store.finish(run_id, run)
        store.delete_run(deleted)
        assert [stored.run_id for stored in store.list_runs()] == [kept]
        assert store.load_samples(kept).step_ns.tolist() == [10, 11]
        assert store.begin(head) > deleted
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        counts = [raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("samples", "observations")]
    raw.close()
    assert counts == [1, 1]


@pytest.mark.parametrize("run_id", [7, 0, -1, 1 << 70])
def test_a_run_that_is_not_there_is_an_unknown_name(store: Store, run: Run, run_id: int) -> None:
    with pytest.raises(UnknownName, match=f"no run named '{run_id}'"):
        store.load_run(run_id)
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.load_samples(run_id),
        lambda: next(store.load_chunks(run_id)),
        lambda: next(store.load_observations(run_id)),
        lambda: store.delete_run(run_id),
        lambda: store.append_samples(run_id, SERIES, 26, [10]),
        lambda: store.append_observations(run_id, [(1, "prompt_timing", PromptTiming(25, 5))]),
        lambda: store.finish(run_id, run),
    )
    for call in calls:
        with pytest.raises(UnknownName):
            call()


def test_a_run_left_by_an_error_is_interrupted_and_keeps_its_samples(path: Path, head: RunHead) -> None:
    with pytest.raises(KeyboardInterrupt), Store.open(path) as store:
        store.append_samples(store.begin(head), SERIES, 26, [10, 11])
        raise KeyboardInterrupt
    with Store.open(path) as store:
        (stored,) = store.list_runs()
    assert (stored.state, stored.n_samples, stored.result_json) == ("interrupted", 2, None)
    assert not stored.is_finished


def test_a_run_that_was_taken_for_interrupted_still_ends_as_it_does(store: Store, head: RunHead, run: Run) -> None:
    run_id = store.begin(head)
    store._interrupt([run_id])
    assert store.load_run(run_id).state == "interrupted"
    store.finish(run_id, run)
    assert store.load_run(run_id).state == "completed"


def test_a_file_name_that_is_not_utf8_is_stored(store: Store, head: RunHead, run: Run) -> None:
    odd = b"/models/caf\xe9.gguf".decode("utf-8", "surrogateescape")
    begun = replace(head, subject=replace(head.subject, model=odd, file=odd), command=f"ggbench decode {odd}")
    run_id = store.begin(begun)
    store.finish(run_id, replace(run, head=begun, reason=f"cannot read {odd}"))
    stored = store.load_run(run_id)
    spelt = "/models/caf\\udce9.gguf"
    assert (stored.subject.file, stored.subject.model) == (spelt, spelt)
    assert (stored.command, stored.reason) == (f"ggbench decode {spelt}", f"cannot read {spelt}")
    assert store.list_runs(model=spelt) == (stored,)


def test_records_of_other_versions_are_read_or_left_out(path: Path, head: RunHead, run: Run) -> None:
    with Store.open(path) as store:
        newer, older = store.begin(head), store.begin(head)
        store.finish(newer, run)
        store.finish(older, run)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        for name in ("subject", "memory", "environment", "gpu_use"):
            document = json.loads(raw.execute(f"SELECT {name} FROM runs WHERE id = ?", (newer,)).fetchone()[0])
            raw.execute(f"UPDATE runs SET {name} = ? WHERE id = ?", (json.dumps(document | {"from_2031": 1}), newer))
            raw.execute(f"UPDATE runs SET {name} = ? WHERE id = ?", ('{"model": 7}', older))
        raw.execute("UPDATE runs SET gpu_use = 'not JSON', environment = '[]', memory = '\"' WHERE id = ?", (older,))
    raw.close()
    with Store.open(path) as store:
        assert_is_stored(store.load_run(newer), run)
        stored = store.load_run(older)
    assert (stored.memory, stored.environment, stored.gpu_use) == (None, None, None)
    assert stored.subject == Subject(model="qwen1.5-0.5b", quant="q4_k_m", source="twin")


def test_settings_that_make_no_run_are_explained() -> None:
    for text in ("", "null", "[]", '{"n_gen": "many"}', '{"n_gen": 0}', '{"n_gen":1e999}', "{"):
        record, reason = decode(text, DecodeSettings)
        assert record is None and reason.startswith("written by another version of ggbench: "), text


def test_samples_that_are_not_read_to_their_end_are_given_up_quietly(tmp_path: Path) -> None:
    """An export to a disk that is full: the store is closed first."""
    with Store.open(tmp_path / "results.sqlite") as store:
        chunks = store.load_chunks(put_run(store, start()))
        next(chunks)
    chunks.close()  # type: ignore[attr-defined]
