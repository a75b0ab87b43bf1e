"""The llama-server command that runs what was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import server_flags
from ggbench.models.catalog import load_catalog
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.text import sanitize


def server_line(run: Run, setup: LlamaConfig, *more: str, **drafts: Any) -> str:  # noqa: ANN401 - as `server_flags` takes them
    """Return the llama-server command that loads the run's model as `setup` does, with more words. Printable."""
    flags = server_flags(setup, on_gpu=bool(run.memory.weights_on_gpu), **drafts)
    return sanitize(shlex.join(["llama-server", *file_words(run.subject), *flags, *more]))


def file_words(subject: Subject, file: str = "-m", repo: str = "-hf") -> Sequence[str]:
    """Return the option that names a model's file or, for a twin, its published one; `file` and `repo` are options."""
    if subject.source != "twin":
        return file, subject.file or f"{subject.model}-{subject.quant}.gguf"
    name = subject.model.removeprefix("twin:")
    known = load_catalog().named(name)
    published = known.repo if known else name if name.count("/") == 1 else None
    if published:
        return repo, f"{published}:{subject.quant}"
    is_path = subject.model.endswith(".gguf")
    return file, subject.model if is_path else f"{name.rpartition('/')[2]}-{subject.quant}.gguf"
