"""What the store has of a search: finished, killed, cancelled, or a store that fails."""

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError
from ggbench.experiments.maxctx.measure import EXPERIMENT
from ggbench.experiments.maxctx.record import Probe
from ggbench.models.targets import Target
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_recording
from tests.fakes.small_machine import SmallMachine, context_of, found, search


@pytest.mark.parametrize("method", ["append_observations", "begin", "finish"])
def test_a_store_that_fails_costs_no_answer(
    target: Target, kv_bytes: int, store: Store, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(self: Store, *_: object) -> None:
        raise StoreError("the disk is full", "make room")

    monkeypatch.setattr(Store, method, fail)
    finished = search(SmallMachine(kv_bytes, 4096).rig(store), target)
    assert context_of(finished.run).max_n_ctx == 4096
    assert finished.store_error is not None


def test_a_probe_that_gave_no_answer_is_no_failure(target: Target, kv_bytes: int, store: Store) -> None:
    context, run = found(SmallMachine(kv_bytes, 4096).rig(store), target)
    assert run.run_id is not None
    recording = read_recording(store, store.load_run(run.run_id))
    for number, each in enumerate(recording.observations):
        if isinstance(each.body, Probe) and each.body.is_proof:
            recording.observations[number] = replace(each, body=replace(each.body, outcome=Outcome.TIMED_OUT))
    left = EXPERIMENT.reduce(recording)
    assert (left.max_n_ctx, left.first_fail_n_ctx, left.verified_by_decode) == (4096, 4352, False)
    assert EXPERIMENT.memory(recording, left).kv_bytes == run.memory.kv_bytes
    assert context.verified_by_decode
