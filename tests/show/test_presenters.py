"""Every kind of run by its presenter: one line, a document, and details."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError
from ggbench.runs.run import Run
from ggbench.show.listed_runs import RESULTS, ListedRun, listed_rows, results_answer
from ggbench.show.presenter import presenter_of
from tests.fakes.measured import search_of, with_decode
from tests.show.conftest import stored


@pytest.mark.parametrize("kind", ["perplexity", "../decode", "os.path", ""])
def test_an_unknown_kind_is_an_error_with_a_hint(kind: str) -> None:
    with pytest.raises(StoreError, match="no presenter"):
        presenter_of(kind)


@pytest.mark.parametrize("kind", ["decode", "prefill", "speed", "maxctx", "quality", "tune"])
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.INTERRUPTED])
def test_a_run_that_a_list_marks_says_in_its_details_what_disturbed_it(
    kind: str, outcome: Outcome, completed: Run, render: Callable[..., str]
) -> None:
    """In a list on the command line and in the TUI alike; a steady run has neither mark nor line."""
    assert completed.environment is not None
    what = "the machine was suspended for 1:02"
    changed = replace(completed.head, kind=kind, environment=replace(completed.environment, changes=(what,)))
    run = replace(completed, head=changed, outcome=outcome, result=None)
    steady = replace(run, head=replace(completed.head, kind=kind))
    for each, line in ((run, f"! unsteady: {what}"), (steady, "")):
        in_list = ListedRun(stored(each), each)
        shown = render(presenter_of(kind).details(each))
        assert ("! " in render(results_answer([in_list], 1), 120)) == bool(line)
        assert (line in shown) if line else ("unsteady" not in shown)


def listed(run: ListedRun) -> dict[str, object]:
    row: dict[str, object] = json.loads(RESULTS.text(listed_rows([run])))["rows"][0]
    return row


def test_a_list_has_each_run_with_its_answer_or_its_reason(completed: Run) -> None:
    search = ListedRun.of(stored(replace(search_of(completed, 8192, proven=False), run_id=7)))
    assert search.note == "n_ctx 8,192 loads; not proven by a decode."
    document = listed(search)
    assert (document["run_id"], document["max_n_ctx"]) == (7, 8192)
    unreadable = ListedRun.of(stored(completed, result_json='{"fit": 3}'))
    assert unreadable.run is not None
    assert "written by another version of ggbench" in unreadable.note
    assert listed(unreadable)["reason"] == unreadable.problem
    assert listed(unreadable)["model"] == "qwen1.5-7b"
    running = ListedRun.of(stored(completed, state="running", finished_at=None, result_json=None))
    assert (running.state, running.note, running.is_completed) == ("running", "still running", False)
    document = listed(ListedRun.of(stored(completed)))
    assert (document["tok_s"], document["n_gen"], document["reason"]) == (108.2, 10_000, None)


def test_a_decode_ends_with_its_speed_and_a_prefill_with_its_longest_prompt(completed: Run, prompts: Run) -> None:
    """Without a result, only that it is done; where it did not complete, why."""
    decode, show = completed, presenter_of("decode")
    answer = "108.2 ±1.3 tok/s over 10,000 tokens"
    assert (
        show.ending(decode) == f"{answer}; 5.926 ±0.016 ms a token at the start, +0.66 ms per 1,000 tokens of context"
    )
    assert show.ending(with_decode(completed, fit=None)) == answer
    assert show.ending(replace(decode, result=None)) == "done"
    full = replace(decode, outcome=Outcome.OUT_OF_MEMORY, result=None, reason="out of memory in load: no \x1b[31mroom")
    assert show.ending(full) == "out of memory in load: no [31mroom"
    assert show.ending(replace(full, reason="no room")) == "out of memory: no room"
    assert show.has_details(replace(decode, outcome=Outcome.CANCELLED)) and not show.has_details(full)
    prefill = presenter_of("prefill")
    assert prefill.ending(prompts) == "232 tok/s over a prompt of 512 tokens, 2204.00 ms to the first token"
    document = prefill.documents.value(prompts)
    assert (document["n_gen"], document["n_prompt"], document["b_ms"]) == (None, None, None)
