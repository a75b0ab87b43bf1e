"""How ggbench starts a llama-server."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from msgspec.structs import replace

from ggbench.engines.contract import (
    BatchedDecode,
    Continue,
    Decode,
    DecodeAtDepth,
    Prefill,
    ProveContext,
    TakeTurn,
)
from ggbench.engines.http.program import (
    NAME,
    check_words,
    find_server,
    list_devices,
    split_command,
)
from ggbench.engines.llama.command_line import server_options
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.text import in_words, shorten

_OWN_OPTIONS = frozenset({
    "--model", "--hf-repo", "--ctx-size", "--parallel", "--host", "--port", "--api-key", "--api-key-file",
    "--ssl-key-file", "--ssl-cert-file", "--api-prefix",
})  # fmt: skip
"""Options that ggbench gives itself, or that hide the server from it, by their last spellings."""


class LlamaServerConfig(LlamaConfig):
    """How llama-server loads a model: the same settings as ggbench's own llama.cpp, given as flags."""

    engine = "llama_server"
    program = NAME
    failure_hints: ClassVar[Mapping[str, str]] = {
        "no output from": "use a longer --timeout",
        "out of memory": "a smaller context or quant needs less",
        "": "earlier measurements are kept; run the command of --engine by hand to see its whole log",
    }
    runs = (
        Prefill, Decode, TakeTurn, BatchedDecode, DecodeAtDepth, Continue, ProveContext,
    )  # fmt: skip
    alternative = "omit --engine: ggbench's own llama.cpp can"
    in_words = frozenset({"command", "spec_type", "n_draft"})

    command: str = ""
    """The program's absolute path and the user's own flags, quoted as for a shell."""
    spec_type: str = ""
    """Value of --spec-type; empty without drafts, or if the draft model decides."""
    n_draft: int | None = None
    """Maximum tokens of a draft; None for the server's default."""

    @classmethod
    def of_command(cls, command: str, setup: LlamaConfig) -> Self:
        """Return a setup run by `[PATH] [FLAGS]`, by default the program on PATH.

        Raises UsageError for a program that is missing or not executable, or a flag that ggbench gives.
        """
        words = find_server(_split(command))
        taken = [word for word in split_command(words)[1] if _name(word) in _OWN_OPTIONS]
        if taken:
            hint = "omit it; MODEL, -c and --batch have options of their own"
            raise UsageError(f"--engine: ggbench sets {in_words(taken)} itself", hint)
        fields = {field: getattr(setup, field) for field in LlamaConfig.__struct_fields__}
        return cls(**fields, command=shlex.join(words))

    @property
    def engine_option(self) -> str:  # type: ignore[override]
        return f"{NAME}={self.command}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)

    @property
    def program_words(self) -> list[str]:
        """The words that start it without the user's flags: `PATH`, or `PATH serve`."""
        return split_command(self.words)[0]

    @property
    def may_use_gpu(self) -> bool:
        layers = self._own("-ngl")
        return (layers != "0" if layers else super().may_use_gpu) and self._own("-dev") != "none"

    @property
    def servers(self) -> tuple[str, ...]:
        """The RPC servers whose devices it uses, also those in the user's own words, which llama.cpp takes instead."""
        return tuple(filter(None, self._own("--rpc").split(","))) or self.rpc_servers

    def with_threads(self, threads: int) -> Self:
        """Return the setup with the threads of the user's own `-t`, which llama-server takes instead of any other."""
        own = self._own("-t")
        if own.isdecimal() and int(own):
            return replace(self, threads=int(own))
        return super().with_threads(threads)

    def drafting(self, spec_type: str, n_draft: int | None = None) -> Self:
        if given := [word for word in self.words[1:] if word.startswith("--spec-")]:
            hint = "omit it; --draft, --spec-type and -k have the same effect"
            raise UsageError(f"--engine: ggbench starts the server with and without {in_words(given)}", hint)
        return replace(self, mtp=False, spec_type=spec_type, n_draft=n_draft)

    def listed_gpus(self) -> Mapping[str, int] | None:
        listed, chosen = list_devices(self.program_words, self.servers), self._own("-dev")
        if listed is None:
            return None
        if chosen:
            wanted = {name.strip().lower() for name in chosen.split(",")}  # llama.cpp ignores case here
            return {name: n_bytes for name, n_bytes in listed.items() if name.lower() in wanted}
        return {name: listed[name] for name in self.used_gpus(list(listed))}

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with room for the token that a server generates before those that are timed."""
        return super().holding(n_tokens + self.n_seq_max)

    def longest_slot(self, n_ctx_train: int | None) -> int | None:
        return n_ctx_train

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        if limit_bytes is not None:
            what = f"ggbench cannot limit the memory of {NAME}, which maxctx in main memory needs"
            raise UsageError(what, "omit --engine; on a GPU, omit --memory-limit and --reserve")
        return self

    def check(self) -> None:
        super().check()
        self.held(self.memory_limit_bytes, on_gpu=False)

    def check_program(self) -> None:
        check_words(self.words)

    def _own(self, flag: str) -> str:
        """Return the value that the user's own words give to an option; the last counts, as in llama.cpp."""
        pairs = reversed(list(itertools.pairwise(self.words)))
        return next((value for word, value in pairs if _name(word) == _name(flag)), "")


def _name(word: str) -> str:
    """Return the last spelling of the option that a word is; empty for any other word."""
    option = server_options().get(word.partition("=")[0])
    return "" if option is None else option.name


def _split(command: str) -> list[str]:
    """Return the words of a command; the whole text is the path if such a file exists."""
    if command and Path(command).expanduser().is_file():
        return [command]
    try:
        return shlex.split(command)
    except ValueError:
        raise UsageError(f"--engine: unbalanced quotes in {shorten(command, 60)!r}", "quote the path") from None
