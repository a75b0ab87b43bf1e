"""What an experiment tells while it runs: frozen records that both front ends draw and tests replay."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.errors import GgbenchError, StoreError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.records import DecodeLimit, DeviceBuffers, Row


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """One quant begins; its file may still have to be made."""

    model: str
    quant: str
    index: int
    """Among the trials of this run, from 0."""
    n_trials: int


@dataclass(frozen=True, slots=True)
class FilePrepared:
    """Bytes of the file that are written or fetched so far."""

    done_bytes: int
    total_bytes: int
    is_download: bool = False
    """Fetched from the Hub, not written here."""


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """The worker loads the model."""

    file: ModelFile
    share: float
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class ModelReady:
    """Model and context are in memory."""

    n_ctx: int
    buffers: tuple[DeviceBuffers, ...]
    run_id: int | None
    """Of the store; None where nothing is stored."""
    limit: DecodeLimit | None = None
    """What the memory that the weights lie in allows; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class PromptRead:
    """One prompt was timed."""

    n_prompt: int
    prefill_ns: int


@dataclass(frozen=True, slots=True)
class TokensDecoded:
    """Some consecutive timed steps."""

    first_position: int
    step_ns: tuple[int, ...]
    n_done: int
    """Timed tokens so far, over all repeats."""
    n_total: int
    text: str


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """One quant is done, well or badly."""

    row: Row
    error: GgbenchError | None = None
    """What kept the trial from starting."""
    store_error: StoreError | None = None
    """Why the store does not have the trial whole; the row has."""


Progress = TrialStarted | FilePrepared | ModelLoading | ModelReady | PromptRead | TokensDecoded | TrialFinished
