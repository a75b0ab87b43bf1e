"""JSON that programs can rely on: names, nulls, strictness."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.summary import QuantSummary
from ggbench.show.documents import document, summary_document
from ggbench.show.model_documents import INSPECT
from ggbench.stats.decode_timing import LatencySummary
from tests.fakes.summaries import with_decode

Golden = Callable[[str, str], None]

# The field names of the JSON documents, as the design lists them for a measured row.
ROW_KEYS = {"expected",
    "model", "quant", "file", "provenance", "file_bytes", "n_params", "bpw", "weight_bytes", "kv_bytes",
    "kv_bytes_per_token", "compute_bytes", "other_bytes", "buffers", "n_ctx", "n_batch", "n_ubatch", "n_prompt",
    "n_gen", "repeat", "max_n_ctx", "max_n_ctx_verified", "max_n_ctx_reason", "prefill_ms", "prefills", "fit",
    "p50_ms", "p95_ms", "p99_ms", "tok_s", "tok_s_ci95", "sample_p50_ms", "limit", "w_ratio",
    "b_ratio", "b_w16_ms", "unsteady", "gpu_use",
    "flash_attn",
    "swa_cells", "serving",
    "outcome", "reason", "config",
    "environment", "command", "run_id", "header_sha256", "peak_bytes",
}  # fmt: skip


def test_document_of_rows(rows: tuple[QuantSummary, ...], golden: Golden) -> None:
    golden("bench.json", document("bench", rows=[summary_document(row) for row in rows]) + "\n")


def test_every_row_has_every_key(rows: tuple[QuantSummary, ...]) -> None:
    for row in rows:
        assert set(summary_document(row)) == ROW_KEYS
    failed = summary_document(rows[2])
    assert all(failed[key] is None for key in ("kv_bytes", "n_gen", "fit", "p50_ms", "limit", "w_ratio", "b_w16_ms"))


def test_document_is_strict_json(completed: QuantSummary) -> None:
    """Numbers that JSON does not have become null, so that a strict reader takes the document."""
    strange = with_decode(completed, latency=LatencySummary(float("nan"), float("inf"), -float("inf"), 1.0, None))
    read = json.loads(document("decode", **summary_document(strange)), parse_constant=pytest.fail)
    assert (read["p50_ms"], read["p95_ms"], read["p99_ms"], read["tok_s"]) == (None, None, None, 1.0)


def test_schema_comes_first() -> None:
    text = document("plan", model="x")
    assert text.splitlines()[1] == '  "schema": "ggbench.plan/1",'
    assert json.loads(text) == {"schema": "ggbench.plan/1", "model": "x"}


def test_text_survives_and_steers_nothing() -> None:
    name = "模型 é \x1b[31m \x9b2J \u202e \u200b \U000e0041 \udcff \u2028"
    text = document("inspect", model=name)
    assert "模型 é" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert text.encode("utf-8")
    assert json.loads(text)["model"] == name


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError):
        document("inspect", path=Path("x"))


def test_document_of_a_header(model_file: ModelFile, golden: Golden) -> None:
    text = INSPECT.text(model_file, tensors=model_file.tensors)
    golden("inspect.json", text + "\n")
    assert json.loads(text)["bpw"] is None
    assert "tensors" not in INSPECT.value(model_file)
