import json
from typing import Any

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.record import PrefillResult
from ggbench.stats.decode_timing import DecodeWindow
from tests.formats.conftest import PEERS, ReadRuns

FORMATS = ("json", "jsonl")

Row = dict[str, Any]


def rows() -> list[Row]:
    found: list[Row] = json.loads((PEERS / "llama-bench.json").read_text())
    return found


def decode_of(runs: list[Any]) -> DecodeResult:
    """The result of the one decode among these runs."""
    (result,) = (each.run.result for each in runs if isinstance(each.run.result, DecodeResult))
    return result


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_of_llama_bench_is_a_decode_and_a_prefill(form: str, read: ReadRuns) -> None:
    runs = {each.run.head.kind: each for each in read(f"llama-bench.{form}")}

    assert set(runs) == {"decode", "prefill"}
    subject, mark = runs["decode"].run.subject, runs["decode"].mark
    assert (subject.source, subject.quant, subject.architecture) == ("imported", "q4_1", "llama")
    assert (mark.tool, mark.file, len(mark.file_sha256)) == ("llama-bench", f"llama-bench.{form}", 64)
    settings, prefill = runs["decode"].run.head.settings, runs["prefill"].run.result
    assert isinstance(settings, DecodeSettings)
    assert isinstance(prefill, PrefillResult)
    assert (settings.n_gen, settings.depths) == (16, (0, 256, 512))
    assert [(each.n_prompt, each.n_depth) for each in prefill.prefills] == [(64, 0), (64, 256), (64, 512)]


def test_the_speeds_are_those_that_llama_bench_computed(read: ReadRuns) -> None:
    runs = {each.run.head.kind: each for each in read("llama-bench.json")}
    prefill, written = runs["prefill"].run.result, [row for row in rows() if row["n_gen"] == 0]
    windows = [record for _, _, record in runs["decode"].observations if isinstance(record, DecodeWindow)]

    assert isinstance(prefill, PrefillResult)
    for speed, row in zip(prefill.prefills, written, strict=True):
        assert speed.tok_s == pytest.approx(row["avg_ts"], rel=0.002)
    assert [1e3 / window.step_ms for window in windows] == pytest.approx(
        [ts for row in rows() if row["n_prompt"] == 0 for ts in row["samples_ts"]], rel=1e-4
    )
    total_ns = sum(ns for row in rows() if row["n_prompt"] == 0 for ns in row["samples_ns"])
    latency = decode_of([runs["decode"]]).latency
    assert latency is not None
    assert latency.tok_s == pytest.approx(96 * 1e9 / total_ns)
    assert (latency.p50_ms, latency.p99_ms) == (None, None)


def test_w_and_b_are_fitted_over_depths(read: ReadRuns) -> None:
    import numpy as np

    (decode,) = (each for each in read("llama-bench.json") if each.run.head.kind == "decode")
    written = [row for row in rows() if row["n_prompt"] == 0]
    middle = [row["n_depth"] + 7.5 for row in written for _ in row["samples_ns"]]
    slope, intercept = np.polyfit(middle, [ns / 16e6 for row in written for ns in row["samples_ns"]], 1)
    fit = decode_of([decode]).fit

    assert fit is not None
    assert fit.w_tokens_per_ms == pytest.approx(1 / slope)
    assert fit.b_ms == pytest.approx(intercept)
    assert (fit.w_ci95, fit.b_ci95) == (None, None)


def test_how_it_was_loaded_is_read(read: ReadRuns) -> None:
    row = rows()[0] | {
        "flash_attn": 1, "load_mode": "none", "no_kv_offload": True, "type_k": "q8_0", "tensor_split": "3.00/1.00",
        "tensor_buft_overrides": "ffn_up=CPU", "n_gpu_layers": 99,
    }  # fmt: skip

    (run,) = read("row.json", json.dumps([row]))

    setup = run.run.head.setup
    assert isinstance(setup, LlamaConfig)
    assert (setup.flash_attn, setup.mmap, setup.kv_offload, setup.type_k) == ("on", False, False, "q8_0")
    assert (setup.tensor_split, setup.override_tensor, setup.n_gpu_layers) == ((3.0, 1.0), ("ffn_up=CPU",), 99)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.json", '[{"n_prompt": "many", "n_gen": 0, "avg_ts": 1}]', "x.json, entry 1: n_prompt is 'many'"),
        ("x.json", '[{"n_prompt": 1e999, "n_gen": 0, "avg_ts": 1}]', "n_prompt is inf"),
        ("x.json", '[{"n_gen": 0, "avg_ts": 1}]', "n_prompt is missing"),
        ("x.json", '[{"n_prompt": 1, "n_gen": 0, "avg_ts": NaN}]', "avg_ts is nan"),
        ("x.json", '[{"n_prompt": 1, "n_gen": 0}]', "there is no time"),
        ("x.json", '[{"n_prompt": 1, "n_gen": 0, "samples_ns": [1, -2]}]', "samples_ns is no list of times"),
        ("x.json", r'[{"n_prompt": "\ud800", "n_gen": 0}]', "expected a whole number"),
        ("x.json", '[{"n_prompt": 1,\n"n_gen" 0}]', "x.json, line 2, column"),
        ("x.json", "[" * 100_000, "not JSON"),
        ("x.json", "[]", "no row of llama-bench"),
        ("x.jsonl", '{"n_prompt": 1, "n_gen": 0, "avg_ts": 5}\n{"n_prompt"', "x.jsonl, line 2"),
        ("x.json", '[{"n_prompt": 9, "n_gen": 9, "avg_ts": 1}]', "pp9+tg9 times a prompt and its answer together"),
        ("x.txt", "hello", "no results in a known format"),
        ("x.json", '{"schema": "ggbench.plan/1", "model": "a"}', "'ggbench.plan/1', not a file of runs"),
    ],
)  # fmt: skip
def test_what_is_no_result_says_which_line_and_field(name: str, text: str, expected: str, read: ReadRuns) -> None:
    with pytest.raises(BadFile) as caught:
        read(name, text)

    assert expected in caught.value.message
    assert caught.value.hint


def test_rows_of_an_older_llama_bench_and_of_a_hostile_one_are_read_plainly(read: ReadRuns) -> None:
    """`use_mmap` and `flash_attn` were switches, and there was no depth; no field steers a terminal."""
    keys = ("build_commit", "model_type", "n_prompt", "n_gen", "avg_ns", "avg_ts", "test_time")
    old = {key: rows()[1][key] for key in keys} | {"use_mmap": False, "flash_attn": True, "cuda": False}
    odd = {"model_filename": "dir/\x1b[31mevil\n\u202e.gguf", "cpu_info": "a\x07b", "backends": "CPU\r\n"}

    (run,) = read("old.json", json.dumps([old | odd]))

    setup = run.run.head.setup
    assert isinstance(setup, LlamaConfig)
    assert (setup.mmap, setup.flash_attn) == (False, "on")
    assert run.run.subject.model == "[31mevil"
    assert run.run.head.environment is not None and run.run.head.environment.cpu == "ab"
