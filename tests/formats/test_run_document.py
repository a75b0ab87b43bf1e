import json
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ggbench.errors import BadFile, UsageError
from ggbench.experiments.quality.record import ChunkScores
from ggbench.formats.imported_run import MOST_VALUES
from ggbench.formats.importing import Kept, keep, read_runs
from ggbench.formats.llama_bench_export import export_run
from ggbench.formats.run_document import as_json
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_recording, read_run
from ggbench.show.anonymous import anonymous
from tests.fakes import machines, measured
from tests.formats.conftest import ReadRuns

Document = dict[str, Any]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "other.sqlite") as opened:
        yield opened


def put_runs(store: Store) -> list[int]:
    head = replace(
        measured.start(command="ggbench decode '/home/alice/my models/x.gguf' -n 3000"),
        environment=machines.ENVIRONMENT,
    )
    head = replace(head, subject=replace(head.subject, model="/home/alice/my models/x.gguf", source="file"))
    run_id = measured.put_run(store, head)
    store.append_observations(run_id, [(7, "prompt_timing", {"n_prompt": 25, "elapsed_ns": 5})])
    return [run_id, measured.put_interrupted(store, measured.start(quant="q8_0"))]


def moved(store: Store, run_ids: list[int], other: Store, path: Path) -> list[Kept]:
    """Take runs from one store to another by a file."""
    path.write_text("".join(as_json(store, [store.load_run(each) for each in run_ids])))
    return keep(other, list(read_runs(path)))


@pytest.mark.parametrize("n_at_once", [1, 1000])
def test_a_file_takes_runs_with_samples_and_observations(
    store: Store, other: Store, tmp_path: Path, n_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.formats.run_document._MANY", n_at_once)
    run_ids = put_runs(store)
    store.close()
    with Store.open(tmp_path / "results.sqlite") as reopened:
        kept = moved(reopened, run_ids, other, tmp_path / "x.json")

        for run_id, there in zip(run_ids, kept, strict=True):
            here, away = reopened.load_run(run_id), other.load_run(there.run_id)
            assert read_run(other, away).result == read_run(reopened, here).result
            assert list(other.load_chunks(there.run_id)) == list(reopened.load_chunks(run_id))
            assert (away.state, away.started_at, away.finished_at) == (here.state, here.started_at, here.finished_at)
            assert away.n_samples == here.n_samples > 0
            bodies = [each.body for each in read_recording(other, away).observations]
            assert bodies == [each.body for each in read_recording(reopened, here).observations]


def test_a_file_names_no_folder_user_and_serial_number(store: Store, other: Store, tmp_path: Path) -> None:
    run_ids = put_runs(store)[:1]
    kept = moved(store, run_ids, other, tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    away = other.load_run(kept[0].run_id)

    for secret in ("alice", "/home", "/cache", "my models", "GPU-1", "0000:01"):
        assert secret not in text
    assert (away.subject.model, away.subject.file, away.subject.source) == ("x.gguf", "q4_k_m.gguf", "file")
    assert away.command == "ggbench decode 'x.gguf' -n 3000"
    assert away.environment is not None
    assert away.environment.gpus[0] == replace(machines.GPU, uuid=None, pci_bus_id=None)
    assert away.environment.imported is not None
    assert (away.environment.imported.tool, away.environment.imported.file) == ("ggbench 0.1.0", "x.json")


def test_a_model_named_by_its_folder_is_called_by_its_file(store: Store, other: Store, tmp_path: Path) -> None:
    """Without a file the folder's own name is all that there is."""
    head = measured.start()
    subject = replace(head.subject, model="/home/alice/best", file="/home/alice/best/Tiny-1B.Q4_K_M.gguf")
    run_id = measured.put_run(store, replace(head, subject=replace(subject, source="file")))
    unnamed = measured.put_run(store, replace(head, subject=replace(subject, file="", model="/home/me/smol")))
    kept = moved(store, [run_id, unnamed], other, tmp_path / "x.json")
    assert [other.load_run(each.run_id).subject.model for each in kept] == ["Tiny-1B", "smol"]
    (again,) = moved(store, [run_id], other, tmp_path / "y.json")
    assert not again.is_new


def test_numbers_in_base64_are_no_paths(store: Store, other: Store, tmp_path: Path) -> None:
    """It has slashes: what each position of a text scored arrives as it was, whatever its bytes."""
    scores = [bytes([255, 255, 254, first]) * 300 for first in range(64)]
    assert any(msgspec.to_builtins(each).startswith("/") for each in scores)
    run_id = put_runs(store)[0]
    store.append_observations(run_id, [(7, "chunk_scores", ChunkScores(1, nll)) for nll in scores])
    (kept,) = moved(store, [run_id], other, tmp_path / "x.json")
    found = [each.body_json for each in other.load_observations(kept.run_id) if each.kind == "chunk_scores"]
    assert [msgspec.json.decode(each, type=ChunkScores).nll for each in found] == scores


def test_an_imported_run_keeps_its_first_mark(store: Store, other: Store, tmp_path: Path, read: ReadRuns) -> None:
    """Rows of llama-bench that came by a file of runs are still llama-bench's, and the same as those of its own."""
    passed_on = moved(
        store, [each.run_id for each in keep(store, read("llama-bench.json"))], other, tmp_path / "x.json"
    )
    assert {each.imported.mark.tool for each in passed_on} == {"llama-bench"}
    assert not any(each.is_new for each in keep(other, read("llama-bench.json")))


def test_a_run_that_goes_on_is_refused_before_anything_is_written(store: Store) -> None:
    ended, running = (store.load_run(each) for each in put_runs(store))
    with pytest.raises(UsageError, match="still running"):
        as_json(store, [ended, running])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/x.gguf", "x.gguf"), ("/home/alice", "~"),
        ("cannot open /mnt/a b/x.gguf: no", "cannot open a b/x.gguf: no"),
        ("ggbench decode '/mnt/a b/x.gguf' -n 5", "ggbench decode 'x.gguf' -n 5"),
        ("ggbench decode ../alice/x.gguf", "ggbench decode x.gguf"),
        ("Qwen/Qwen1.5-7B-Chat-GGUF", "Qwen/Qwen1.5-7B-Chat-GGUF"), ("decode/p25/b1/r0", "decode/p25/b1/r0"),
        ("http://alices-box:8080/v1", "http://server/v1"),
        ("https://huggingface.co/Qwen/x", "https://huggingface.co/Qwen/x"),
    ],
)  # fmt: skip
def test_folders_are_left_out_of_texts(text: str, expected: str) -> None:
    assert anonymous({"a": [text]}) == {"a": [expected]}


def changed(store: Store, tmp_path: Path, change: Callable[[Document], object]) -> Path:
    document = json.loads("".join(as_json(store, [store.load_run(put_runs(store)[0])])))
    change(document["runs"][0])
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda run: run.update(kind="../evil"), "no experiment '../evil'"),
        (lambda run: run.update(schema="ggbench.run/2"), "not a run of this version"),
        (lambda run: run["setup"].update(n_batch="many"), "Expected `int`, got `str` - at `$.n_batch`"),
        (lambda run: run["settings"].update(n_gen=-1), "the number of tokens to decode is below 1"),
        (lambda run: run["samples"].append(run["samples"][0]), "are invalid"),
        (lambda run: run["samples"][0]["step_ns"].__setitem__(0, -1), "are invalid"),
        (lambda run: run["samples"][0].update(first_position=0), "are invalid"),
        (lambda run: run["samples"][0].update(first_position=(1 << 63) - 1), "are invalid"),
        (lambda run: run["samples"][0]["step_ns"].__setitem__(0, (1 << 63) - 1), "are invalid"),
        (
            lambda run: [each.update(step_ns=[0] * len(each["step_ns"]), sampler_ns=[]) for each in run["samples"]],
            "took 0 ns",
        ),
        (lambda run: run.update(started_at="0001-01-01T00:00:00+14:00"), "its start or end is no time"),
        (lambda run: run["result"]["fit"].update(w_tokens_per_ms=0), "w_tokens_per_ms"),
        (lambda run: run["result"]["fit"].update(w_ci95=[0, None]), "w_ci95"),
        (lambda run: run["result"]["latency"].update(tok_s_ci95=[0, None]), "tok_s_ci95"),
        (lambda run: run.update(finished_at="soon"), "its start or end is no time"),
        (lambda run: run["observations"].append({"at_ns": 1}), "`$.observations["),
    ],
)
def test_a_run_that_is_none_is_refused(
    change: Callable[[Document], object], expected: str, store: Store, tmp_path: Path
) -> None:
    path = changed(store, tmp_path, change)

    with pytest.raises(BadFile) as caught:
        list(read_runs(path))

    assert expected in caught.value.message
    assert "changed.json, run 1" in caught.value.message


def test_hostile_texts_of_a_file_are_plain(store: Store, other: Store, tmp_path: Path) -> None:
    path = changed(store, tmp_path, lambda run: run["subject"].update(model="\x1b]0;x\x07evil\nname"))

    kept = keep(other, list(read_runs(path)))

    assert other.load_run(kept[0].run_id).subject.model == "]0;xevil name"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"schema": "ggbench.runs/1", "runs": [', "not a complete JSON document"),
        ('{"schema": "ggbench.decode/1", "n_gen": 5}', "not a file of runs"),
    ],
)
def test_what_is_no_file_of_runs_is_one_clear_error(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(BadFile, match=expected):
        list(read_runs(path))


def test_a_file_that_names_itself_another_does_not_keep_that_out(
    store: Store, other: Store, tmp_path: Path, read: ReadRuns
) -> None:
    """Which run it is follows from its content: a genuine one comes in beside a made one that has its hash."""
    (genuine, *_) = read("llama-bench.json")
    run_id = keep(store, [genuine])[0].run_id
    document = json.loads("".join(as_json(store, [store.load_run(run_id)])))
    (run,) = document["runs"]
    made = {**run, "environment": run["environment"] | {"imported": msgspec.to_builtins(genuine.mark)}}
    made["observations"] = [each for each in run["observations"] if each["kind"] != "imported_row"]
    (tmp_path / "made.json").write_text(json.dumps(document | {"runs": [made]}))
    assert [each.is_new for each in keep(other, list(read_runs(tmp_path / "made.json")))] == [True]
    assert [each.is_new for each in keep(other, [genuine])] == [True]
    run["result"]["n_gen"] = 7  # beside its true rows
    (tmp_path / "made.json").write_text(json.dumps(document))
    (again,) = keep(other, list(read_runs(tmp_path / "made.json")))
    assert not again.is_new and read_run(other, other.load_run(again.run_id)).result == genuine.run.result


def test_imports_at_once_store_a_run_once(tmp_path: Path, read: ReadRuns) -> None:
    runs, path, together = read("llama-bench.json"), tmp_path / "shared.sqlite", threading.Barrier(4)
    Store.open(path).close()

    def import_all(_: int) -> list[bool]:
        with Store.open(path) as opened:
            together.wait()
            return [each.is_new for each in keep(opened, runs)]

    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(import_all, range(4)))
    assert sorted(kept) == [[False] * len(runs)] * 3 + [[True] * len(runs)]
    with Store.open(path) as opened:
        assert opened.count_runs() == len(runs)


@pytest.mark.parametrize(("value", "counts"), [("[]", 5), ("{}", 5), ("1", 1)])
def test_a_file_of_millions_of_values_is_refused(value: str, counts: int, tmp_path: Path) -> None:
    """It is small on the disk, and would take up to a hundred times as much memory."""
    path = tmp_path / "x.json"
    path.write_text('{"schema": "ggbench.runs/1", "runs": [' + f"{value}," * (MOST_VALUES // counts) + f"{value}]}}")
    with pytest.raises(BadFile, match="values"):
        list(read_runs(path))


def test_steps_that_took_no_time_are_exported_as_no_row(store: Store) -> None:
    """Two tokens of a server may arrive in one read."""
    run_id = measured.put_run(store, measured.start())
    stored = store.load_run(run_id)
    recording = read_recording(store, stored)
    for series in recording.series.values():
        series.step_ns = array("q", [0] * len(series.step_ns))
    assert export_run(read_run(store, stored), recording).rows == ()
