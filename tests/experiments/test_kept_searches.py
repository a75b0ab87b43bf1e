"""What the store has of a search: finished, killed, cancelled, or written by another version."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from ggbench.experiments.search_progress import ProbeFinished, ProbeStarted, SearchFinished

from ggbench.catalog.selector import Target, resolve_one
from ggbench.errors import StoreError
from ggbench.experiments.maxctx import run_maxctx
from ggbench.experiments.stored import stored_certificate
from ggbench.records.outcome import Outcome
from ggbench.store.database import Store
from ggbench.units import MIB
from tests.fakes.small_machine import SmallMachine, certified, search, settings


def test_a_search_is_kept_with_its_certificate(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """The store has every answer, the certificate, and a line for its lists."""
    with Store.open(tmp_path / "results.sqlite") as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())

        assert found.run_id is not None
        run = store.load_run(found.run_id)
        assert (run.kind, run.state, run.command) == ("maxctx", "completed", found.command)
        assert store.load_certificate(found.run_id)[0] == found == stored_certificate(store, run)
        assert store.load_probes(found.run_id) == found.probes
        assert run.row is not None
        assert (run.row.max_n_ctx, run.row.max_n_ctx_verified, run.row.kv_bytes) == (4096, True, found.kv_bytes)
        assert run.row.buffers == found.buffers


def test_a_search_that_was_killed_keeps_what_it_had_asked(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What works and what does not, as far as it came, and no claim of a proof."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        progress = run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings())
        with contextlib.closing(progress):
            seen = [each.probe for each in takewhile(not_proving, progress) if isinstance(each, ProbeFinished)]
    with Store.open(path) as store:
        (run,) = store.list_runs()
        left = stored_certificate(store, store.load_run(run.run_id))
    assert run.state == "interrupted"
    assert left.probes == tuple(seen)
    assert (left.max_n_ctx, left.first_fail_n_ctx, left.verified_by_decode) == (4096, 4352, False)
    assert (left.outcome, left.reason) == (Outcome.INTERRUPTED, "ggbench ended before the run did")


def not_proving(record: object) -> bool:
    """Whether the search has not come to its decode."""
    return not (isinstance(record, ProbeStarted) and record.kind == "decode")


def test_a_search_that_was_killed_at_once_has_found_nothing(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """No context is known to work."""
    with Store.open(tmp_path / "results.sqlite") as store:
        progress = run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings())
        with contextlib.closing(progress):
            next(each for each in progress if isinstance(each, ProbeStarted))
        (run,) = store.list_runs()
        left = stored_certificate(store, store.load_run(run.run_id))
    assert (left.max_n_ctx, left.first_fail_n_ctx) == (None, None)
    assert {probe.kind for probe in left.probes} == {"dry"}
    assert left.environment is not None


def test_a_store_that_fails_costs_no_answer(
    target: Target, kv_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is told with why it is not kept."""

    def fail(self: Store, *_: object) -> None:
        raise StoreError("the disk is full", "make room")

    for method in ("append_probe", "begin"):
        monkeypatch.setattr(Store, method, fail)
        with Store.open(tmp_path / f"{method}.sqlite") as store:
            finished = search(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        assert finished.certificate.max_n_ctx == 4096
        assert finished.store_error is not None


def test_a_search_whose_run_is_deleted_goes_on(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """As from another container, which takes the search for dead: nothing more is kept, and nothing is wrong."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        records = []
        for record in run_maxctx(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), (target,), settings()):
            records.append(record)
            raw.execute("DELETE FROM runs")
    finished = records[-1]
    assert isinstance(finished, SearchFinished)
    assert (finished.certificate.max_n_ctx, finished.certificate.run_id) == (4096, None)
    assert finished.store_error is None


def test_a_probe_that_gave_no_answer_is_no_failure(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What works stays known where the decode after it was cancelled or too slow, and the search then killed."""
    with Store.open(tmp_path / "results.sqlite") as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        assert found.run_id is not None
        run_id = store.begin(store.load_run(found.run_id).start)
        slow = [
            replace(probe, outcome=Outcome.TIMED_OUT) if probe.kind == "decode" else probe for probe in found.probes
        ]
        for number, probe in enumerate(slow):
            store.append_probe(run_id, number, probe)
        left = stored_certificate(store, store.load_run(run_id))
    assert (left.max_n_ctx, left.first_fail_n_ctx, left.verified_by_decode) == (4096, 4352, False)
    assert (left.kv_bytes, left.compute_bytes) == (found.kv_bytes, found.compute_bytes)


def test_a_certificate_of_another_version_is_explained(target: Target, kv_bytes: int, tmp_path: Path) -> None:
    """What its probes tell, and why the rest cannot be read."""
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        found = certified(replace(SmallMachine(kv_bytes, 4096).rig(), store=store), target, settings())
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("UPDATE runs SET certificate = '{}'")
        assert found.run_id is not None
        left = stored_certificate(store, store.load_run(found.run_id))
    assert (left.max_n_ctx, left.verified_by_decode) == (4096, True)
    assert "another version of ggbench" in left.reason


def test_ctrl_c_before_the_file_is_there_leaves_no_run(
    kv_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a trial whose file is not there yet."""

    def prepare(*_: object) -> Generator[None]:
        yield from ()
        raise CancelledError

    monkeypatch.setattr("ggbench.experiments.maxctx.prepare", prepare)
    with Store.open(tmp_path / "results.sqlite") as store:
        rig = replace(SmallMachine(kv_bytes, 4096).rig(), store=store)
        finished = search(rig, resolve_one("synth:qwen1.5-0.5b", "q8_0"), settings(limit_bytes=4096 * MIB))
        assert finished.certificate.outcome is Outcome.CANCELLED
        assert store.list_runs() == ()
