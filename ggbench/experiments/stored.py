"""What came of a stored run; of one that was interrupted, what its samples or its probes tell."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from ggbench.experiments.row import prefill_speeds
from ggbench.records import N_PROMPT, Certificate, Outcome, Row
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
    row = run.start.as_row(Outcome.INTERRUPTED, _why_unfinished(run))
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


def stored_certificate(store: Store, run: Run) -> Certificate:
    """The certificate of a run of kind `maxctx`; where it has none, what its probes tell. Raises StoreError."""
    found, unreadable = store.load_certificate(run.run_id)
    if found is not None:
        return found
    probes = store.load_probes(run.run_id)
    real = [probe for probe in probes if probe.kind != "dry" and probe.is_answer]
    first_fail = min((probe.n_ctx for probe in real if not probe.passed), default=None)
    passed = [probe for probe in real if probe.passed and (first_fail is None or probe.n_ctx < first_fail)]
    if any(probe.kind == "decode" and not probe.passed for probe in real):  # contexts that were made count no longer
        passed = [probe for probe in passed if probe.kind == "decode"]
    largest = max((probe.n_ctx for probe in passed), default=None)
    at_largest = next((probe for probe in passed if probe.n_ctx == largest), None)
    start = run.start
    return Certificate(
        model=start.model,
        quant=start.quant,
        file=start.file,
        provenance=start.provenance,
        file_bytes=start.file_bytes,
        n_params=start.n_params,
        bpw=start.bpw,
        weight_bytes=start.weight_bytes,
        kv_bytes_per_token=start.kv_bytes_per_token,
        outcome=Outcome.INTERRUPTED,
        reason=unreadable or _why_unfinished(run),
        max_n_ctx=largest,
        kv_bytes=None if at_largest is None else at_largest.kv_bytes,
        compute_bytes=None if at_largest is None else at_largest.compute_bytes,
        first_fail_n_ctx=first_fail,
        verified_by_decode=any(probe.kind == "decode" and probe.n_ctx == largest for probe in passed),
        probes=probes,
        config=start.config,
        environment=start.environment,
        run_id=run.run_id,
        command=start.command,
    )


def _why_unfinished(run: Run) -> str:
    return "still running" if run.state == RUNNING else "ggbench ended before the run did"
