"""Which runs a question finds by their facts, whatever happened to the table of facts."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.machine.records import Imported
from ggbench.runs.comparable import machine_key, runs_of_file, setting_of
from ggbench.runs.run import Run
from ggbench.runs.store import connection, facts
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import StoredRun

HEADER = "ab" * 32
IMPORTED = Imported(tool="llama-bench", file="x", file_sha256="1", content_sha256="2")


def _found(store: Store, run: Run) -> list[int | None]:
    assert run.head.environment is not None
    return [each.run_id for each in runs_of_file(store, machine_key(run.head.environment), HEADER, "")]


def test_the_runs_of_a_file_are_those_completed_here(store: Store, run: Run) -> None:
    """Another machine's, another file's, unfinished, imported and unreadable runs are not."""
    environment, subject = run.head.environment, run.head.subject
    assert environment is not None
    assert _found(store, run) == []
    first, second = store.add(run), store.add(run)
    store.add(replace(run, outcome=Outcome.INTERRUPTED))
    for changed in (
        {"environment": replace(environment, cpu="another")}, {"environment": replace(environment, imported=IMPORTED)},
        {"environment": None}, {"subject": replace(subject, header_sha256="cd" * 32)}, {"kind": "unknown"},
    ):  # fmt: skip
        store.add(replace(run, head=replace(run.head, **changed)))
    store.begin(run.head)
    assert _found(store, run) == [second, first]


def test_at_most_twelve_repeats_of_a_setting_count(store: Store, run: Run) -> None:
    other = replace(run, head=replace(run.head, settings=DecodeSettings(301)))
    assert setting_of(other) != setting_of(run)
    oldest = store.add(other)
    numbers = [store.add(run) for _ in range(facts.NEWEST + 1)]
    assert _found(store, run) == [*numbers[:0:-1], oldest]


def test_a_question_sees_each_change_of_a_run(store: Store, path: Path, run: Run) -> None:
    run_id = store.begin(run.head)
    with Store.open(path) as other:
        assert _found(other, run) == []
        other._interrupt([run_id])  # as for a process that seems to be gone
        assert _found(other, run) == []
        store.finish(run_id, run)
        assert _found(other, run) == [run_id]
        store.delete_run(run_id)
        assert _found(other, run) == []


@pytest.mark.parametrize("damage", ["DROP TABLE facts", "ALTER TABLE facts ADD COLUMN more", "DELETE FROM facts"])
def test_facts_that_are_missing_or_of_another_ggbench_are_derived_again(path: Path, run: Run, damage: str) -> None:
    with Store.open(path) as store:
        numbers = [store.add(run), store.add(run)]
        assert _found(store, run) == numbers[::-1]
    with contextlib.closing(sqlite3.connect(path)) as raw:
        for name in ("facts_ended", "facts_deleted"):
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(damage)
        raw.commit()
    with Store.open(path) as store:
        assert _found(store, run) == numbers[::-1]


def _read_only(path: Path) -> tuple[sqlite3.Connection, Path, tuple[str, ...]]:
    """Open the file as one without permission to write, which root always has."""
    found, notices = connection._open_read_only(path)
    return found, path, notices


@pytest.mark.parametrize("n_derived", [0, 1])
def test_a_file_that_cannot_be_written_is_still_asked(path: Path, run: Run, n_derived: int) -> None:
    """The facts are then in memory."""
    with Store.open(path) as store:
        numbers = [store.add(run), store.add(run)]
        if n_derived:
            _found(store, run)
            numbers.append(store.add(run))
    with Store(*_read_only(path)) as store:
        with pytest.raises(StoreError, match="cannot write"):
            store.add(run)
        assert _found(store, run) == numbers[::-1]
    with contextlib.closing(sqlite3.connect(path)) as raw:
        (n_tables,) = raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'facts'").fetchone()
    assert n_tables == n_derived


def test_other_processes_may_delete_runs_while_facts_are_derived(store: Store, path: Path, run: Run) -> None:
    kept, deleted = store.add(run), store.add(run)
    with Store.open(path) as other:

        def derive(stored: StoredRun) -> facts.RunFacts:
            if stored.run_id == deleted:
                other.delete_run(deleted)
            return facts.RunFacts(stored.run_id, "machine", "setting", "header")

        store.facts.update(derive)
    assert store.facts.of_file("machine", "header", "") == ((kept,),)


def test_a_damaged_file_that_keeps_no_fact_holds_no_question_up(store: Store, path: Path, run: Run) -> None:
    assert _found(store, run) == []
    store.add(run)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TRIGGER gone AFTER INSERT ON facts BEGIN DELETE FROM facts; END")
    assert _found(store, run) == []
