"""Short names of models and of compared quants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggbench.records.subject import Subject
from ggbench.records.summary import QuantSummary
from ggbench.report.columns import COLUMNS
from ggbench.report.names import file_name, model_name, unambiguous_names
from tests.fakes.summaries import with_run, with_subject


@pytest.mark.parametrize(
    ("model", "source", "file", "expected"),
    [
        ("qwen1.5-7b", "hub", "/hub/models--org--name/snapshots/1/x-q8_0.gguf", "qwen1.5-7b"),
        ("org/name", "hub", "/lm/models/org/name/x-q8_0.gguf", "org/name"),
        ("synth:qwen1.5-0.5b", "twin", "/cache/twins/qwen1.5-0.5b-q8_0.gguf", "synth:qwen1.5-0.5b"),
        ("/home/me/models/x-q8_0.gguf", "file", "/home/me/models/x-q8_0.gguf", "x-q8_0.gguf"),
        ("x-Q8_0.GGUF", "file", "/home/me/x-Q8_0.GGUF", "x-Q8_0.GGUF"),
        ("~/models/tiny", "file", "/home/me/models/tiny/x-q8_0.gguf", "tiny"),
        ("models/tiny", "file", "/home/me/models/tiny/sub/x-q8_0.gguf", "tiny"),
        (".", "file", "/home/me/tiny/x-q8_0.gguf", "tiny"),
        ("..", "file", "", ".."),
        ("/m/\x1b[31mred.gguf", "file", "", "[31mred.gguf"),
    ],
)
def test_a_path_is_shown_by_its_name(model: str, source: str, file: str, expected: str) -> None:
    """Of a file or of a folder; what is no path stays as it was named."""
    assert model_name(Subject(model=model, quant="q8_0", source=source, file=file)) == expected


def test_tables_have_names_and_programs_have_paths(completed: QuantSummary) -> None:
    """The path stays in a column's value, which CSV has."""
    path = "/home/me/models/tiny-q4_k_m.gguf"
    given = with_subject(completed, model=path, file=path)
    for key in ("model", "file"):
        assert COLUMNS[key].text(given) == "tiny-q4_k_m.gguf"
        assert COLUMNS[key].value(given) == path
    assert file_name(replace(completed.subject, file="")) == ""


def test_compared_quants_have_the_shortest_names_that_differ(completed: QuantSummary, twin: QuantSummary) -> None:
    """The quant where quants differ, the model where models do, both, or both with the run's number."""
    other_model = with_subject(completed, model="qwen2-7b")
    other_quant = with_subject(other_model, quant="q8_0")
    again = with_run(completed, run_id=50)
    assert unambiguous_names([completed]) == ("qwen1.5-7b q4_k_m",)
    assert unambiguous_names([completed, twin]) == ("q4_k_m", "q2_k")
    assert unambiguous_names([completed, other_model]) == ("qwen1.5-7b", "qwen2-7b")
    assert unambiguous_names([completed, other_model, other_quant])[1:] == ("qwen2-7b q4_k_m", "qwen2-7b q8_0")
    assert unambiguous_names([completed, again]) == ("qwen1.5-7b q4_k_m (run 41)", "qwen1.5-7b q4_k_m (run 50)")
