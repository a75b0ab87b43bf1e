"""The GGUF file that a person would run, and the commands that run it."""

from __future__ import annotations

from pathlib import Path

import msgspec


class FileToRun(msgspec.Struct, frozen=True):
    """Where the weights of a quant are, or where they can be downloaded."""

    model: str
    """MODEL and QUANT arguments of `ggbench pull`, where there is something to pull; names for Ollama."""
    quant: str
    paths: tuple[Path, ...] = ()
    """The file, or all its shards in order; where `is_here` is false the paths that `ggbench pull` will give them.
    Empty where those are unknown.
    """
    is_here: bool = False
    repo: str = ""
    """Repo of the Hub, `org/name`; empty where no published file is known."""


class RunCommands(msgspec.Struct, frozen=True):
    """The same load, as each program takes it: lines for a POSIX shell."""

    llama_server: str
    llama_cli: str
    pull: str = ""
    """Downloads the file first; empty where it is on this disk, or nothing is known to download."""
    modelfile: str = ""
    """For `ollama create`; empty where Ollama has no equivalent."""
    ollama: tuple[str, ...] = ()
    """Lines in order: a comment on the server's environment, where that differs from the default, then `ollama create`
    and `ollama run`. They expect the text of `modelfile` in a file of that name.
    """
    notes: tuple[str, ...] = ()
    """What the lines cannot express, a sentence each."""
