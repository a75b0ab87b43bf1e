"""Chunks that an earlier run has scored already, so that one that was stopped need not begin again."""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.quality.record import ChunkScores, QualitySettings, ScoredBase, ScoredText
from ggbench.runs.recording import Recording
from ggbench.runs.session import Session
from ggbench.runs.store.runs import RUNNING
from ggbench.runs.stored import read_recording


def earlier_scores(session: Session, n_chunks: int) -> tuple[int, tuple[ChunkScores, ...]]:
    """Return the number and the scores of the newest run of the same file, setup, text, base and llama.cpp.

    Imported runs do not count. 0 and nothing where there is none, and where it has all `n_chunks`: whoever asks again
    wants them scored again.
    """
    store, own = session.rig.store, session.recorder.recording
    if store is None or session.settings(QualitySettings).save_base_logits:
        return 0, ()
    for stored in store.list_runs(kind=own.head.kind):
        same_file = stored.subject.header_sha256 == own.head.subject.header_sha256
        is_over_here = stored.state != RUNNING and not stored.is_imported
        if not is_over_here or not same_file or stored.run_id == session.recorder.run_id:
            continue
        with contextlib.suppress(StoreError, UnknownName):
            found = read_recording(store, stored)
            scores = found.of(ChunkScores)
            if scores and _asked(found) == _asked(own):
                n_scored = sum(each.n_chunks for each in scores)
                return (stored.run_id, scores) if n_scored < n_chunks else (0, ())
    return 0, ()


def _asked(recording: Recording) -> object:
    """What decides the scores of a chunk."""
    head, settings = recording.head, recording.settings(QualitySettings)
    version = None if head.environment is None else head.environment.llama_cpp
    same = replace(settings, n_chunks=None, within_s=None)
    return head.setup, same, version, recording.last(ScoredText), recording.last(ScoredBase)
