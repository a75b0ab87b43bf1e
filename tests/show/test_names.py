"""Short names of models and of compared quants."""

from msgspec.structs import replace

from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary
from ggbench.show.names import model_names, unambiguous_names
from tests.fakes.measured import with_run, with_subject


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
    assert unambiguous_names([completed, twin]) == ("qwen1.5-7b q4_k_m", "twin:qwen1.5-0.5b q2_k")
    assert unambiguous_names([completed, other_model]) == ("qwen1.5-7b", "qwen2-7b")
    assert unambiguous_names([completed, other_model, other_quant])[1:] == ("qwen2-7b q4_k_m", "qwen2-7b q8_0")
    assert unambiguous_names([completed, again]) == ("qwen1.5-7b q4_k_m (run 41)", "qwen1.5-7b q4_k_m (run 50)")
