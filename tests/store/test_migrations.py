from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ggbench.errors import StoreError, UnknownName
from ggbench.records.machine import GpuProcess, MachineReading, Throttling
from ggbench.records.outcome import Outcome
from ggbench.store import migrations
from ggbench.store.database import Store

DATA = Path(__file__).parent.parent / "data"


def build(script: Path, path: Path) -> None:
    """Make the database that a released version left."""
    path.parent.mkdir(parents=True)
    raw = sqlite3.connect(path)
    raw.executescript(script.read_text(encoding="utf-8"))
    raw.close()


def schema(path: Path) -> list[tuple[str, str]]:
    """Names and definitions of all tables and indexes."""
    raw = sqlite3.connect(path)
    found = raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    raw.close()
    return [(name, " ".join(sql.split())) for name, sql in found if not name.startswith("sqlite_")]


def test_every_version_has_a_file_to_be_tested_from() -> None:
    """A new migration comes with what the version before it left on disks."""
    assert [script.name for script in sorted(DATA.glob("store_v*.sql"))] == [
        f"store_v{version}.sql" for version in range(1, len(migrations.MIGRATIONS) + 1)
    ]


@pytest.mark.parametrize("script", sorted(DATA.glob("store_v*.sql")), ids=lambda script: script.stem)
def test_the_runs_of_every_version_are_read(path: Path, script: Path) -> None:
    """Both the finished run and the killed one come up to date with their samples, and end in the schema of today."""
    build(script, path)
    with Store.open(path) as store:
        *searches, killed, finished = store.list_runs()
        assert [run.kind for run in searches] == (["maxctx"] * 2 if script.stem >= "store_v3" else [])
        assert (killed.run_id, killed.kind, killed.state, killed.n_samples) == (2, "bench", "interrupted", 2)
        assert (finished.run_id, finished.kind, finished.state, finished.n_samples) == (1, "decode", "completed", 4)
        assert (killed.row, killed.row_error, finished.row_error) == (None, "", "")
        assert store.load_run(2).start.bpw is None
        row = store.load_run(1).row
        assert row is not None and row.environment is not None and row.fit is not None
        assert (row.outcome, row.run_id, row.environment.gpus[0].bus_width_bits) == (Outcome.COMPLETED, 1, 384)
        assert (row.fit.w_ci95, row.config.tensor_split, row.buffers[1].device) == ((1200, None), (0.25, 0.75), "CUDA0")
        samples = store.load_samples(1)
        assert samples.repeat.tolist() == [0, 0, 0, 1]
        assert samples.position.tolist() == [26, 27, 28, 26]
        assert samples.step_ns.tolist() == [11_000_000, 11_000_001, 11_000_002, 1 << 40]
        assert samples.sample_ns is not None and samples.sample_ns.tolist() == [50, 51, 52, 53]
        assert store.load_samples(1, phase="warmup").step_ns.tolist() == [900, 901]
        assert [timing.warmup for timing in store.load_prefills(1)] == [True, False]
        assert len(store.load_readings(1)) == (0 if script.stem == "store_v1" else 2)
    fresh = path.parent / "fresh.sqlite"
    Store.open(fresh).close()
    assert schema(path) == schema(fresh)


def test_readings_of_version_2_are_read(path: Path) -> None:
    """What the machine did comes back with its GPU, and what it told for the row."""
    build(DATA / "store_v2.sql", path)
    with Store.open(path) as store:
        first, second = store.load_readings(1)
        (alone,) = store.load_readings(2)
        row = store.load_run(1).row
    assert (first.cpu_share, second.cpu_share, alone.gpus) == (None, 0.5, ())
    assert (second.gpus[0].sm_clock_mhz, second.gpus[0].throttle) == (2001, ("sw_power_cap",))
    assert second.gpus[0].processes == (GpuProcess(911, "/usr/bin/desktop", 314572800), GpuProcess(4243, None, None))
    assert row is not None and row.gpu_use is not None
    assert (row.gpu_use.energy_per_token_mj, row.gpu_use.throttle) == (5120.5, (Throttling("sw_power_cap", 1),))


def test_searches_of_version_3_are_read(path: Path) -> None:
    """The finished one has its certificate, and the killed one what it had asked."""
    build(DATA / "store_v3.sql", path)
    with Store.open(path) as store:
        (certificate, _), row = store.load_certificate(3), store.load_run(3).row
        assert certificate is not None and row is not None
        assert (certificate.max_n_ctx, certificate.verified_by_decode, certificate.run_id) == (24_576, True, 3)
        assert (certificate.probes, row.max_n_ctx_verified) == (store.load_probes(3), True)
        assert certificate.gpu_processes == (GpuProcess(911, "/usr/bin/desktop", 314_572_800),)
        assert store.load_certificate(4) == (None, "")
        assert [(probe.kind, probe.n_ctx, probe.passed) for probe in store.load_probes(4)] == [
            ("dry", 24_576, True),
            ("dry", 24_832, False),
            ("alloc", 24_576, True),
            ("alloc", 24_832, False),
        ]


def test_a_run_of_version_1_takes_readings(path: Path) -> None:
    """A file that was made before there were readings takes them for runs old and new, and deletes them with a run."""
    build(DATA / "store_v1.sql", path)
    reading = MachineReading(1, 0.25, 2, 3)
    with Store.open(path) as store:
        store.append_readings(1, [reading])
        assert store.load_readings(1) == (reading,)
        store.delete_run(1)
        with pytest.raises(UnknownName):
            store.load_readings(1)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM readings").fetchone() == (0,)
    raw.close()


def add_note(connection: sqlite3.Connection) -> None:
    """A step that a later version might take."""
    connection.execute("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")


def fail_halfway(connection: sqlite3.Connection) -> None:
    """A step that changes something and then breaks."""
    connection.execute("DROP TABLE prefills")
    connection.execute("ALTER TABLE nowhere ADD COLUMN note TEXT")


def test_a_later_step_is_taken_once_and_keeps_the_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the missing steps run, on data that is there."""
    build(DATA / "store_v1.sql", path)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_note))
    for _ in range(2):
        with Store.open(path) as store:
            assert len(store.list_runs()) == 2
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT note FROM runs").fetchall() == [("none",), ("none",)]
    assert raw.execute("PRAGMA user_version").fetchone() == (len(migrations.MIGRATIONS),)
    raw.close()


def test_a_step_that_fails_leaves_the_file_at_its_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps before it in the same upgrade are undone too, and the old ggbench can still read everything."""
    build(DATA / "store_v1.sql", path)
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_note, fail_halfway))
        with pytest.raises(StoreError, match="nowhere"):
            Store.open(path)
    with Store.open(path) as store:
        assert store.notices == ()
        assert len(store.load_prefills(1)) == 2
        assert len(store.list_runs()) == 2
