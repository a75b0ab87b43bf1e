"""Results files with damage that SQLite does not notice, each once found by `scripts/hardening`."""

import sqlite3
from pathlib import Path

import pytest

from ggbench.machine.records import MachineReading
from ggbench.runs.run import RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_recording

SERIES = "decode/p25/b1/r0"


def damage(path: Path, *statements: str) -> None:
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table'")
    raw.commit()
    raw.close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


@pytest.mark.parametrize("column", ["subject", "model", "setup", "settings", "command", "state", "memory", "kind"])
@pytest.mark.parametrize("value", ["NULL", "x'ce41'", "CAST(x'ce41' AS TEXT)"], ids=["none", "bytes", "not UTF-8"])
def test_a_damaged_column_does_not_hide_the_other_runs(path: Path, head: RunHead, column: str, value: str) -> None:
    with Store.open(path) as store:
        store.begin(head)
        store.begin(head)
    damage(path, f"UPDATE runs SET {column} = {value} WHERE id = 1")
    with Store.open(path) as store:
        runs = store.list_runs()
    assert [run.run_id for run in runs] == [2, 1]
    assert runs[0].subject == head.subject


@pytest.mark.parametrize("value", ["NULL", "'text'", "x'010203'"])
def test_damaged_samples_are_left_out(path: Path, head: RunHead, value: str) -> None:
    with Store.open(path) as store:
        run_id = store.begin(head)
        store.append_samples(run_id, SERIES, 0, [7] * 10)
    damage(path, f"UPDATE samples SET step_ns = {value}")
    with Store.open(path) as store:
        assert store.load_samples(run_id).step_ns.tolist() == []


@pytest.mark.parametrize("body", ["NULL", "'{\"at_ns\"'", "x'ff'", "replace(body, ':2', ':99999999999999999999')"])
def test_a_damaged_reading_hides_no_other(path: Path, head: RunHead, body: str) -> None:
    readings = [MachineReading(number, 0.5, None, None) for number in (1, 2, 3)]
    with Store.open(path) as store:
        run_id = store.begin(head)
        store.append_observations(run_id, [(each.at_ns, "machine_reading", each) for each in readings])
    damage(path, f"UPDATE observations SET body = {body} WHERE number = 1")
    with Store.open(path) as store:
        found = read_recording(store, store.load_run(run_id)).readings
    assert [each for each in found if each in readings] == [readings[0], readings[2]]
