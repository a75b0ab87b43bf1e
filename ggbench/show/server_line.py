"""The llama-server command that runs what was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ggbench.engines.http.program import printed_program
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import server_flags
from ggbench.machine.host import default_threads
from ggbench.models.catalog import HUB_REPO, load_catalog
from ggbench.models.subject import Subject
from ggbench.paths import path_exists
from ggbench.runs.run import Run
from ggbench.text import sanitize


def server_line(run: Run, setup: LlamaConfig, *more: str, **drafts: Any) -> str:  # noqa: ANN401 - as `server_flags` takes them
    """Return the command of a server that loads the run's model as `setup` does, with more words. Printable."""
    if setup.threads == default_threads():
        setup = replace(setup, threads=None)
    program = shlex.split(setup.engine_option.partition("=")[2]) or printed_program().split()
    flags = server_flags(setup, on_gpu=bool(run.memory.weights_on_gpu), **drafts)
    return sanitize(shlex.join([*program, *file_words(run.subject), *flags, *more]))


def file_words(subject: Subject, file: str = "-m", repo: str = "-hf") -> Sequence[str]:
    """Return the option that names a model's file or, for a twin, its published one; `file` and `repo` are options."""
    if subject.source != "twin" or path_exists(subject.model):
        return file, subject.file or subject.model
    name = subject.model.removeprefix("twin:")
    known = load_catalog().named(name)
    if known is None or known.repo is None:
        is_repo = HUB_REPO.fullmatch(name)
        return (repo, f"{name}:{subject.quant}") if is_repo else (file, f"{name}-{subject.quant}.gguf")
    return repo, f"{known.repo}:{subject.quant}"
