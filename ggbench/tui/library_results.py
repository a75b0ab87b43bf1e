"""What was measured on this machine of the quants that the Library plans: the latest decode and the latest search.

A run counts for a plan only where it was loaded as the plan is: another type of KV cache or another placement of the
layers is another speed and another memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import field
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.text import plain

_Key = tuple[object, ...]


class LatestResults(msgspec.Struct, frozen=True):
    """The latest completed decode and search of each quant."""

    _decodes: dict[_Key, QuantSummary] = field(default_factory=dict)
    _searches: dict[_Key, QuantSummary] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[Run]) -> LatestResults:
        """Take them from `runs`, newest first, as the store lists them."""
        found = cls({}, {})
        for run in runs:
            setup, subject = run.head.setup, run.subject
            if not run.is_complete or run.is_imported or not isinstance(setup, LlamaConfig):
                continue
            summary = QuantSummary.of([run])
            for name in _names(subject.model, subject.quant, subject.file):
                if summary.fit is not None:
                    loaded = _of_speed(setup)
                    found._decodes.setdefault((name, loaded), summary)
                    found._decodes.setdefault((name, replace(loaded, threads=None, threads_batch=None)), summary)
                if summary.max_n_ctx is not None:
                    found._searches.setdefault((name, _of_memory(setup)), summary)
        return found

    def decode(self, model: str, quant: str, file: str, setup: LlamaConfig) -> QuantSummary | None:
        """Return the latest decode of a quant with this setup, by its file, else by model and quant."""
        names = _names(model, quant, file)
        return next((found for name in names if (found := self._decodes.get((name, _of_speed(setup))))), None)

    def search(self, model: str, quant: str, file: str, setup: LlamaConfig) -> QuantSummary | None:
        """Return the latest search of a quant for its largest context, with this setup and without a ceiling."""
        names, wanted = _names(model, quant, file), _of_memory(replace(setup, n_ctx=None))
        return next((found for name in names if (found := self._searches.get((name, wanted)))), None)


def _names(model: str, quant: str, file: str) -> tuple[object, ...]:
    return (*([file] if file else []), (plain(model), quant))


def _of_memory(setup: LlamaConfig) -> LlamaConfig:
    """The setup without what changes no buffer; `n_ctx` is a search's ceiling."""
    return replace(setup, threads=None, threads_batch=None, mmap=True, mlock=False)


def _of_speed(setup: LlamaConfig) -> LlamaConfig:
    """The setup without what a decode's speed does not depend on; a plan without threads takes a run with any."""
    return replace(setup, n_ctx=None, n_batch=2048, n_ubatch=512, mmap=True, mlock=False, memory_limit_bytes=None)
