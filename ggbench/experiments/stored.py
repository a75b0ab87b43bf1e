"""Rows of runs that never made one: what the store kept of an interrupted run, fitted as far as it came."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from ggbench.experiments.row import prefill_speeds
from ggbench.records import N_PROMPT, Outcome, Row
from ggbench.stats.linefit import fit_line
from ggbench.stats.steadiness import unsteady
from ggbench.stats.summary import summarize
from ggbench.store.database import Store
from ggbench.store.runs import RUNNING, Run


def stored_row(store: Store, run: Run) -> Row:
    """The run's own row; made from its samples where it has none. Raises StoreError where they cannot be read."""
    if run.row is not None:
        return run.row
    samples = store.load_samples(run.run_id)
    prefill_ns: dict[int, list[int]] = {}
    for timing in store.load_prefills(run.run_id):
        prefill_ns.setdefault(timing.n_prompt, []).append(timing.prefill_ns)
    prompts_only = run.kind == "prefill"
    prompt_ns = [] if prompts_only else prefill_ns.get(N_PROMPT, [])
    reason = "still running" if run.state == RUNNING else "ggbench ended before the run did"
    row = run.start.as_row(Outcome.INTERRUPTED, reason)
    return replace(
        row,
        run_id=run.run_id,
        n_prompt=None if prompts_only else N_PROMPT,
        n_gen=len(samples.step_ns),
        prefill_ms=median(prompt_ns) / 1e6 if prompt_ns else None,
        prefills=prefill_speeds(prefill_ns) if prompts_only else (),
        fit=fit_line(samples.position, samples.step_ns),
        latency=summarize(samples.step_ns, samples.sample_ns),
        unsteady=unsteady(samples.position, samples.step_ns),
    )
