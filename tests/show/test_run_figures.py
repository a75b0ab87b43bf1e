"""Columns: every text and value, and the short names of models."""

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.machine.known_devices import known_devices
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.show.names import model_names, short_device, unambiguous_names
from ggbench.show.presenter import all_figures, figure_of
from ggbench.show.run_figures import rows_of, w_text
from ggbench.show.words import say
from ggbench.stats.decode_timing import Break, DecodeLimit, LatencySummary, LineFit
from tests.fakes.measured import search_of, with_decode, with_run, with_subject


@pytest.mark.parametrize(
    ("key", "fit", "text"),
    [
        ("w_tokens_per_ms", LineFit(300, 205.31, (201.4, 209.5), None, None), "205 ±4"),
        ("w_tokens_per_ms", LineFit(300, None, (1234.4, None), None, None), "> 1234"),
        ("w_tokens_per_ms", LineFit(300, 205.31, (150.0, None), None, None), "> 150"),
        ("w_tokens_per_ms", LineFit(300, None, None, None, None), "—"),
        ("w_tokens_per_ms", LineFit(300, 205.31, None, None, None), "205"),
        ("b_ms", LineFit(300, 205.0, (201.0, 209.0), 10.917, (10.84, 10.99)), "10.92 ±0.08"),
        ("b_ms", LineFit(300, 205.0, (201.0, 209.0), None, (10.84, 13.55)), "< 13.6"),
        ("b_ms", LineFit(300, 205.0, (201.0, 209.0), None, None), "—"),
    ],
)
def test_w_and_b_are_values_or_bounds(completed: Run, key: str, fit: LineFit, text: str) -> None:
    assert figure_of(key).text(with_decode(completed, fit=fit)) == text


@pytest.mark.parametrize(
    ("ci95", "text"), [((106.9, 109.5), "108.2 ±1.3"), ((106.9, None), "> 107"), (None, "108"), ((108.2, 108.2), "108")]
)
def test_speed_has_its_interval(completed: Run, ci95: tuple[float, float | None] | None, text: str) -> None:
    latency = LatencySummary(9.2, 12.7, 108.2, ci95)
    assert figure_of("tok_s").text(with_decode(completed, latency=latency)) == text


def test_unknown_is_a_dash_for_people_and_nothing_for_programs() -> None:
    subject = Subject(model="m", quant="q", source="file", file="f")
    head = RunHead(kind="decode", subject=subject, setup=LlamaConfig(), settings=DecodeSettings(1), command="c")
    row = Run(head=head, outcome=Outcome.FAILED, reason="refused")
    known = {"model", "quant", "file", "source", "outcome", "note", "command"}
    for key in set(all_figures()) - known:
        assert figure_of(key).get(row) is None
        assert figure_of(key).text(row) == "—"


def test_two_quants_of_one_name_in_a_repo_are_named_by_their_files() -> None:
    subjects = [
        Subject(model="org/name", quant="q4_k_m", source="hub", file=f"/hub/snapshots/{commit}/{file}")
        for commit, file in ((1, "x-Q4_K_M.gguf"), (2, "x-Q4_K_M.gguf"), (1, "x-i1-Q4_K_M.gguf"))
    ]
    assert model_names([*subjects[:2], replace(subjects[0], file="")]) == ("org/name",) * 3
    assert model_names(subjects)[1:] == ("org/name x-Q4_K_M.gguf", "org/name x-i1-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 3060", "RTX 3060"), ("AMD Ryzen 9 7950X 16-Core Processor", "Ryzen 9 7950X"),
        ("Intel(R) Arc(TM) A770 Graphics (DG2)", "Arc A770 (DG2)"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "Xeon Platinum 8481C"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Xeon @ 2.20GHz"),
    ],
)  # fmt: skip
def test_a_device_loses_only_what_others_share(name: str, short: str) -> None:
    assert short_device(name) == short


def test_known_devices_have_distinct_short_names() -> None:
    names = {device.name for device in known_devices()}
    assert len(set(map(short_device, names))) == len(names)


def test_compared_quants_have_the_shortest_names_that_differ(completed: Run, twin: Run) -> None:
    other_model = with_subject(completed, model="qwen2-7b")
    other_quant = with_subject(other_model, quant="q8_0")
    again = with_run(completed, run_id=50)
    assert unambiguous_names([completed]) == ("qwen1.5-7b q4_k_m",)
    assert unambiguous_names([completed, with_subject(completed, quant="q2_k")]) == ("q4_k_m", "q2_k")
    assert unambiguous_names([completed, twin]) == ("qwen1.5-7b q4_k_m", "twin:qwen1.5-0.5b q2_k")
    assert unambiguous_names([completed, other_model]) == ("qwen1.5-7b", "qwen2-7b")
    assert unambiguous_names([completed, other_model, other_quant])[1:] == ("qwen2-7b q4_k_m", "qwen2-7b q8_0")
    assert unambiguous_names([completed, again]) == ("qwen1.5-7b q4_k_m (run 41)", "qwen1.5-7b q4_k_m (run 50)")


def test_nothing_is_derived_from_a_bound_of_b(completed: Run) -> None:
    bounded = with_decode(completed, fit=LineFit(300, None, (1234.4, None), None, (10.8, 11.0)))
    assert figure_of("b_ms").text(bounded) == "< 11.0"
    assert [figure_of(key).get(bounded) for key in ("b_ratio", "b_w16_ms", "w_ratio")] == [None] * 3


def test_a_row_without_w_says_how_many_tokens_it_needs(completed: Run) -> None:
    """Where the decode was too short for a line; not where the line is flat."""
    note = figure_of("note").text
    assert note(completed) == ""
    short = with_decode(completed, n_gen=30, fit=LineFit(30, None, None, None, None))
    assert note(short) == "30 tokens are too few for W, which needs at least 488"
    assert note(with_decode(short, unsteady="the clock fell")).endswith("488; unsteady: the clock fell")
    flat = LineFit(300, None, (1234.4, None), None, (9.0, 11.0))
    assert note(with_decode(short, fit=flat)) == ""
    bent = LineFit(10_000, None, None, None, None)
    assert note(with_decode(completed, fit=bent)) == say("run.bent")


@pytest.mark.parametrize(
    ("fit", "text"),
    [
        (LineFit(9, 1900.0, None, 5.0, None), "1900"),
        (LineFit(9, 1900.0, (1800.0, 2000.0), 5.0, None, breaks=(Break(2048, 271.0, (270.0, 272.0)),)),
         "271.0 ±1.0, then 1900 ±100 from 2,048"),
        (LineFit(9, None, (900.0, None), 5.0, None, breaks=(Break(2048, 271.0),)), "271, then > 900 from 2,048"),
        (LineFit(9, None, None, 5.0, None, breaks=(Break(2048, 271.0),)), "271 up to 2,048"),
        (DecodeLimit(None, 5.0, (Break(1024, 271.0),), bandwidth_bytes_per_s=1e9, bandwidth_source=""),
         "271 up to 1,024"),
    ],
)  # fmt: skip
def test_w_says_where_it_changes(fit: LineFit | DecodeLimit, text: str) -> None:
    assert w_text(fit) == text


def test_w_before_a_break_is_a_figure_of_its_own(completed: Run) -> None:
    row = with_decode(completed, fit=LineFit(9, 1900.0, None, 5.0, None, breaks=(Break(2048, 271.0),)))
    assert [figure_of(key).get(row) for key in ("w_before", "w_break", "w_tokens_per_ms")] == [271.0, 2048, 1900.0]
    assert [figure_of(key).get(completed) for key in ("w_before", "w_break")] == [None, None]


@pytest.mark.parametrize(
    ("n_ctx", "verified", "text"), [(8192, True, "8,192"), (8192, False, "~8,192"), (None, None, "—")]
)
def test_a_context_that_no_decode_proved_is_in_question(
    completed: Run, n_ctx: int | None, verified: bool | None, text: str
) -> None:
    row = search_of(completed, n_ctx, proven=bool(verified))
    assert figure_of("max_n_ctx").text(row) == text
    assert figure_of("max_n_ctx").get(row) == n_ctx


def test_tables_have_names_and_programs_have_paths(completed: Run) -> None:
    path = "/home/me/models/tiny-q4_k_m.gguf"
    given = with_subject(completed, model=path, file=path)
    assert (figure_of("file").text(given), figure_of("file").get(given)) == ("tiny-q4_k_m.gguf", path)
    assert figure_of("model").get(given) == path
    other = with_subject(given, model="/home/me/models/other.gguf", file="/home/me/models/other.gguf")
    assert rows_of([given, other])[0].text(given) == "tiny"
