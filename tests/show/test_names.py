"""Short names of models and of compared quants."""

import pytest
from msgspec.structs import replace

from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary
from ggbench.show.names import model_names, unambiguous_names
from tests.fakes.measured import with_run, with_subject


def of_file(path: str, quant: str = "q4_1", model: str = "", n_layer: int | None = None) -> Subject:
    return Subject(model=model or path, quant=quant, source="file", file=path, n_layer=n_layer)


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        ([of_file("/m/a.gguf", model="/m"), of_file("/m/b.gguf", model="/m")], ("a.gguf", "b.gguf")),
        ([of_file("/m/a/model.gguf"), of_file("/m/b/model.gguf")], ("a/model.gguf", "b/model.gguf")),
        ([of_file("/m/x-Q4_1.gguf"), of_file("/m/x.q4_1.gguf")], ("x-Q4_1.gguf", "x.q4_1.gguf")),
        ([of_file("/m/x-Q4_1.gguf", model="/m"), of_file("/m/x-Q8_0.gguf", "q8_0")], ("x", "x")),
        ([of_file("/m/x-Q4_1.gguf"), of_file("/n/x-Q8_0.gguf", "q8_0")], ("x", "x")),
        (
            [of_file("/m/p/x-Q4_1.gguf"), of_file("/m/q/x-Q4_1.gguf"), of_file("/m/q/x-Q8_0.gguf", "q8_0")],
            ("p/x", "q/x", "q/x"),
        ),
        ([of_file("/p/a/x.gguf"), of_file("/q/a/x.gguf"), of_file("/z.gguf")], ("p/a/x.gguf", "q/a/x.gguf", "z.gguf")),
        ([of_file("/1/2/3/4/x.gguf"), of_file("/5/2/3/4/x.gguf")], ("/1/2/3/4/x.gguf", "/5/2/3/4/x.gguf")),
        ([of_file("/p/x.gguf", n_layer=2), of_file("/q/x.gguf", "q8_0", n_layer=3)], ("p/x.gguf", "q/x.gguf")),
        ([of_file("/m/x-Q4_1.gguf"), of_file("/m/x-Q4_1.gguf"), of_file("")], ("x", "x", "")),
    ],
)
def test_no_two_files_have_the_same_name(subjects: list[Subject], expected: tuple[str, ...]) -> None:
    assert model_names(subjects) == expected


def test_two_quants_of_one_name_in_a_repo_are_named_by_their_files() -> None:
    subjects = [
        Subject(model="org/name", quant="q4_k_m", source="hub", file=f"/hub/snapshots/{commit}/{file}")
        for commit, file in ((1, "x-Q4_K_M.gguf"), (2, "x-Q4_K_M.gguf"), (1, "x-i1-Q4_K_M.gguf"))
    ]
    assert model_names([*subjects[:2], replace(subjects[0], file="")]) == ("org/name",) * 3
    assert model_names(subjects)[1:] == ("org/name x-Q4_K_M.gguf", "org/name x-i1-Q4_K_M.gguf")


def test_compared_quants_have_the_shortest_names_that_differ(completed: QuantSummary, twin: QuantSummary) -> None:
    other_model = with_subject(completed, model="qwen2-7b")
    other_quant = with_subject(other_model, quant="q8_0")
    again = with_run(completed, run_id=50)
    assert unambiguous_names([completed]) == ("qwen1.5-7b q4_k_m",)
    assert unambiguous_names([completed, with_subject(completed, quant="q2_k")]) == ("q4_k_m", "q2_k")
    assert unambiguous_names([completed, twin]) == ("qwen1.5-7b q4_k_m", "synth:qwen1.5-0.5b q2_k")
    assert unambiguous_names([completed, other_model]) == ("qwen1.5-7b", "qwen2-7b")
    assert unambiguous_names([completed, other_model, other_quant])[1:] == ("qwen2-7b q4_k_m", "qwen2-7b q8_0")
    assert unambiguous_names([completed, again]) == ("qwen1.5-7b q4_k_m (run 41)", "qwen1.5-7b q4_k_m (run 50)")
