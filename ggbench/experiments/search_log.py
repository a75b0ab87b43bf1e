"""What a search for the largest context asked, kept in the store as it goes, so that a kill costs no answer."""

from __future__ import annotations

from dataclasses import replace

from ggbench.errors import StoreError, UnknownName
from ggbench.records import Certificate, Outcome, Probe, Row
from ggbench.store.database import Store
from ggbench.store.runs import RunStart


class SearchLog:
    """One run of the store. A store that fails costs the search its place in it, never the answer.

    Someone in another container, who sees no process of it, may delete the run; then nothing more of it is kept.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._start: RunStart | None = None
        self._run_id: int | None = None
        self._n_probes = 0
        self.error: StoreError | None = None
        """Why the store does not have the search, or not all of it; None when it has."""

    def begin(self, start: RunStart) -> None:
        """Open a run."""
        self._start = start
        try:
            self._run_id = None if self._store is None else self._store.begin(start)
        except StoreError as error:
            self._give_up(error)

    def keep(self, probe: Probe) -> None:
        """Add an answer."""
        if self._store is not None and self._run_id is not None:
            try:
                self._store.append_probe(self._run_id, self._n_probes, probe)
            except UnknownName:
                self._forget()
            except StoreError as error:
                self._give_up(error)
            self._n_probes += 1

    def finish(self, certificate: Certificate) -> Certificate:
        """End the run; the certificate then knows it. One that never began is given back as it is."""
        if self._run_id is None or self._start is None:
            return certificate
        certificate = replace(certificate, run_id=self._run_id)
        if self._store is not None:
            try:
                self._store.finish(self._run_id, _as_row(self._start, certificate), certificate)
            except UnknownName:
                self._forget()
            except StoreError as error:
                self._give_up(error)
        return replace(certificate, run_id=self._run_id)

    def _forget(self) -> None:
        self._store = self._run_id = None

    def _give_up(self, error: StoreError) -> None:
        self._store, self.error = None, error


def _as_row(start: RunStart, found: Certificate) -> Row:
    """The certificate as a line of a list has it."""
    is_found = found.outcome is Outcome.COMPLETED
    return replace(
        start.as_row(found.outcome, "" if is_found else found.reason),
        file=found.file or start.file,
        buffers=found.buffers,
        kv_bytes=found.kv_bytes,
        compute_bytes=found.compute_bytes,
        peak_bytes=found.peak_bytes,
        other_bytes=found.other_bytes,
        n_ctx=found.max_n_ctx,
        n_batch=found.n_batch,
        n_ubatch=found.n_ubatch,
        max_n_ctx=found.max_n_ctx,
        max_n_ctx_verified=None if found.max_n_ctx is None else found.verified_by_decode,
        max_n_ctx_reason=found.reason if is_found else "",
        flash_attn=found.flash_attn,
        environment=found.environment,
    )
