"""What a search for the largest context tells while it runs: frozen records that both front ends draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ggbench.errors import GgbenchError, StoreError
from ggbench.experiments.progress import FilePrepared, ModelLoading, TrialStarted
from ggbench.records import Certificate, Probe


@dataclass(frozen=True, slots=True)
class ProbeStarted:
    """A question is asked; one of a real context takes seconds."""

    n_ctx: int
    kind: Literal["alloc", "decode"]
    passed: int | None
    """The largest n_ctx known to work."""
    failed: int | None
    """The smallest known not to."""
    budget_bytes: int | None = None
    """Of memory that the search may take; the first question and a decode come near to it."""


@dataclass(frozen=True, slots=True)
class FarEndFilling:
    """The cells before the far end of the context are being filled."""

    share: float
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class ProbeFinished:
    """A question is answered; dry ones are told as well."""

    probe: Probe
    passed: int | None
    """As `ProbeStarted.passed`, with this answer."""
    failed: int | None


@dataclass(frozen=True, slots=True)
class SearchFinished:
    """One quant is done, well or badly."""

    certificate: Certificate
    error: GgbenchError | None = None
    """Why there is no largest context; a front end that runs only this search raises it."""
    store_error: StoreError | None = None
    """Why the store does not have the search, or not all of it."""


SearchProgress = (
    TrialStarted | FilePrepared | ModelLoading | ProbeStarted | FarEndFilling | ProbeFinished | SearchFinished
)
