"""Files to import: what commands print with --json, read back with every figure, and files that are refused."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.errors import BadFile
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe, SearchPlan
from ggbench.experiments.quality.record import (
    Divergence,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
    TextSource,
)
from ggbench.experiments.speed.record import (
    BatchLine,
    Case,
    CaseEnded,
    CaseMemory,
    SpeedCase,
    SpeedResult,
    SpeedSettings,
)
from ggbench.formats.imported_run import STDIN, Named
from ggbench.formats.importing import keep, read_runs
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.show.document import json_text
from ggbench.show.presenter import presenter_of
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from ggbench.stats.intervals import Estimate
from tests.fakes import measured
from tests.formats.conftest import PEERS

FIT = LineFit(3000, 400.0, (390.0, 411.0), 10.0, (9.5, 10.5), 0.99, 398.0)
LIMIT = DecodeLimit(610.0, 6.0, 60e9, "measured in a test")
MEMORY = Memory(
    buffers=(DeviceBuffers("CPU", weight_bytes=385_000_000, kv_bytes=9, compute_bytes=8, output_bytes=7),),
    tensor_bytes=385_000_000, n_ctx=3072, n_batch=2048, n_ubatch=512, flash_attn=True, peak_bytes=400_000_000,
    other_bytes=14_999_976,
)  # fmt: skip


def decode(path: Path) -> Run:
    with Store.open(path / "one.sqlite") as store:
        return read_run(store, store.load_run(measured.put_run(store, measured.start())))


def search() -> Run:
    probes = (
        Probe(8192, "alloc", Outcome.COMPLETED, 0.5, 9, 8),
        Probe(8448, "alloc", Outcome.OUT_OF_MEMORY, 0.2, reason="10 MiB short", missing_bytes=10 << 20),
    )
    plan = SearchPlan(
        planned_n_ctx=8192, theory_n_ctx=9000, ceiling_n_ctx=32768, budget_bytes=1 << 30, memory_bytes=2 << 30,
        memory_source="given", reserve_bytes=1 << 20, reserve_source="for the process", free_bytes=3 << 30,
        warnings=("one",),
    )  # fmt: skip
    result = MaxctxResult(
        plan=plan, max_n_ctx=8192, first_fail_n_ctx=8448, verified_by_decode=True, probes=probes, warnings=("one",)
    )
    head = replace(measured.start(), kind="maxctx", settings=MaxctxSettings())
    return Run(head=head, outcome=Outcome.COMPLETED, memory=MEMORY, result=result)


def quality() -> Run:
    some = Estimate(0.5, 0.1)
    text = TextSource("text.txt", "a" * 64, None)
    base = replace(measured.start().subject, quant="f16")
    apart = Divergence(some, ((100.0, 2.0), (50.0, 0.1)), some, Estimate(0.5, 0.0), some, some, some)
    result = QualityResult(
        text, 512, ScoredText(0, 2, 0, "b" * 64), 2, 510, Estimate(12.0, 0.5), (2.4, 2.6), ScoredBase(base), (), apart
    )
    head = replace(measured.start(), kind="quality", settings=QualitySettings(text, 512, 2))
    return Run(head=head, outcome=Outcome.COMPLETED, memory=Memory(), result=result)


def speed(quant: str) -> Run:
    ran = SpeedCase(
        CaseEnded(Case(4, 512, 64), prefill_ns=2_000_000_000, memory=CaseMemory(385_000_000, 9, 15)),
        2000.0, 2001.0, 1000.0, LatencySummary(15.0, 16.0, 17.0, 64.0, None), 15.625, 1024.0, 256.0, 85.3, 768.0, 1.5,
    )  # fmt: skip
    skipped = SpeedCase(CaseEnded(Case(8, 512, 64), Outcome.SKIPPED, "too long", expected_s=99.0))
    result = SpeedResult((ran, skipped), (BatchLine(4, FIT, LIMIT), BatchLine(8, None, None)))
    head = replace(measured.start(quant=quant), kind="speed", settings=SpeedSettings((512,), 64, (4, 8)))
    return Run(head=head, outcome=Outcome.COMPLETED, memory=Memory(flash_attn=True), result=result)


def printed(path: Path, schema: str, **content: object) -> Path:
    file = path / "printed.json"
    file.write_text(json_text({"schema": f"ggbench.{schema}/1"} | content))
    return file


def imported(file: Path) -> list[Run]:
    return [each.run for each in read_runs(file, Named())]


def test_a_decode_keeps_every_figure(tmp_path: Path) -> None:
    run = decode(tmp_path)
    file = printed(tmp_path, "decode", **presenter_of("decode").documents.value(run))
    [found] = imported(file)
    assert found.result == run.result
    assert found.head.setup == run.head.setup
    assert found.head.command == run.head.command
    assert found.memory.buffers == run.memory.buffers
    assert found.subject == run.subject
    environment = found.head.environment
    assert environment is not None
    assert environment.imported is not None
    assert environment.imported.tool == "ggbench 0.1.0"
    assert len(environment.imported.file_sha256) == 64
    assert any("the document has no timed steps" in lack for lack in environment.imported.lacks)


@pytest.mark.parametrize("make", [search, quality])
def test_other_kinds_keep_their_results(tmp_path: Path, make: Callable[[], Run]) -> None:
    run = make()
    documents = presenter_of(run.head.kind).documents
    assert documents.several is not None
    value = documents.value(run)
    for document, content in (
        (documents.one, value),
        (documents.stored, value | {"state": "completed", "readings": []}),
        (documents.several, {"model": "m", "rows": [value]}),
    ):
        [found] = imported(printed(tmp_path, document.schema, **content))
        if run.head.kind == "quality":
            assert isinstance(found.result, QualityResult)
            assert found.result.base is not None
            found = replace(found, result=replace(found.result, base=None))
            assert isinstance(run.result, QualityResult)
            assert found.result == replace(run.result, base=None)
        else:
            assert found.result == run.result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "ggbench.plan/1"}, "has no measured runs"),
        ({"schema": "ggbench.decode/9"}, "has no measured runs"),
        ({"fit": {"n_samples": "many"}}, "int`, got `str` - at `\\$.fit.n_samples`"),
        ({"outcome": "splendid"}, "'splendid' - at `\\$.outcome`"),
        ({"config": {"url": "http://server"}}, "is not a llama.cpp run"),
        ({"n_gen": -3}, "below 1"),
        ({"model": None}, "model"),
        ({"rows": []}, "has no rows"),
    ],
)
def test_what_is_no_such_document_is_one_error(tmp_path: Path, change: dict[str, object], message: str) -> None:
    content: dict[str, Any] = {"schema": "ggbench.decode/1", **presenter_of("decode").documents.value(decode(tmp_path))}
    file = tmp_path / "x.json"
    file.write_text(json.dumps(json.loads(json_text(content)) | change))
    with pytest.raises(BadFile, match=message):
        imported(file)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=120)
@given(data=st.data())
def test_any_field_may_hold_anything(tmp_path: Path, data: st.DataObject) -> None:
    makers: dict[str, Callable[[], Run]] = {
        "maxctx": search, "quality": quality, "speed": lambda: speed("q8_0"), "decode": lambda: decode(tmp_path),
    }  # fmt: skip
    kind = data.draw(st.sampled_from(sorted(makers)))
    (tmp_path / "one.sqlite").unlink(missing_ok=True)
    whole = json.loads(json_text(presenter_of(kind).documents.value(makers[kind]())))
    place, name = whole, data.draw(st.sampled_from(sorted(whole)))
    while isinstance(place[name], dict) and place[name] and data.draw(st.booleans()):
        place = place[name]
        name = data.draw(st.sampled_from(sorted(place)))
    place[name] = data.draw(_JSON)
    file = tmp_path / "x.json"
    file.write_text(json.dumps(whole | {"schema": f"ggbench.{kind}/1"}))
    try:
        runs = list(read_runs(file, Named()))
    except BadFile:
        return
    (tmp_path / "kept.sqlite").unlink(missing_ok=True)
    with Store.open(tmp_path / "kept.sqlite") as store:
        for kept in keep(store, runs):
            run = read_run(store, store.load_run(kept.run_id))
            presenter_of(run.head.kind).documents.value(run)
            presenter_of(run.head.kind).ending(run)


def refusal(path: Path) -> str:
    with pytest.raises(BadFile) as caught:
        list(read_runs(path, Named()))
    assert caught.value.hint
    return caught.value.message


def test_a_file_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, 1 << 30)

    assert refusal(path) == "huge.json is larger than 64.0 MiB"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.write_text(" \n")

    assert "is a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "missing.json")
    assert "not a regular file" in refusal(pipe)
    assert "empty is empty" in refusal(empty)


def test_binary_content_is_refused(tmp_path: Path) -> None:
    for name, content, expected in (
        ("x.gguf", b"GGUF\3\0\0\0" + bytes(64), "no results"),
        ("x.bin", bytes(range(256)), "no results"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert expected in refusal(path)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO((PEERS / "llama-bench.json").read_bytes())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=content))

    assert len(list(read_runs(STDIN, Named()))) == 2
