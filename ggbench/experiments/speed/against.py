"""Each case of a speed run beside the published rows of the same protocol that are nearest to it."""

from __future__ import annotations

from ggbench.experiments.speed.document import CASE, result_of
from ggbench.experiments.speed.record import Case
from ggbench.models.published.rows import PublishedRow, load_published
from ggbench.models.published.selection import NearRow, nearest_published
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show.against import device_of, published_model, system_of

_NEAREST = 3


def nearest_to_case(run: Run, case: Case, limit: int = _NEAREST) -> tuple[NearRow, ...]:
    """Return published rows of the model that count as the case does, every difference named; empty without any.

    For one sequence those are speeds by input length, for several the throughputs of batches, where there are any.
    Rows of the case's own input length, or batch, come before those of the nearest.
    """
    model = published_model(run.subject)
    if model is None:
        return ()
    rows = [row for row in load_published() if row.model == model and _is_of_protocol(row)]
    if case.n_seqs > 1:
        rows = [row for row in rows if row.throughput_tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == case.n_seqs] or rows
    else:
        rows = [row for row in rows if row.tok_s is not None] or rows
        rows = [row for row in rows if row.batch_size == 1] or rows
    rows = [row for row in rows if row.n_prompt == case.n_input] or rows
    return nearest_published(
        rows,
        model,
        run.subject.quant,
        device=device_of(QuantSummary.of([run])),
        n_prompt=case.n_input,
        n_gen=case.n_gen,
        batch_size=case.n_seqs,
        limit=limit,
        system=system_of(QuantSummary.of([run])),
    )


def speed_against_document(run: Run) -> dict[str, object]:
    """Return the `cases` of a run, each with the nearest published rows as `against`."""
    cases = []
    for found in result_of(run).cases:
        near = nearest_to_case(run, found.case)
        cases.append(CASE.value(found, quant=run.subject.quant, against=near))
    return {"cases": cases}


def _is_of_protocol(row: PublishedRow) -> bool:
    """Whether the row has the tokens per second of a batch of known size, for one sequence or for all."""
    return row.batch_size is not None and (row.tok_s is not None or row.throughput_tok_s is not None)
