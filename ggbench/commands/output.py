"""Output of a command: data on stdout, everything else on stderr; streams that are closed, or lack characters."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TextIO

import click
import msgspec

from ggbench.fields import Option
from ggbench.text import in_ascii

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ggbench.show.document import Document


class Output(msgspec.Struct, frozen=True):
    """How one command writes."""

    as_json: Annotated[bool, Option(heading="output")] = False
    """Print one JSON document to stdout."""
    quiet: Annotated[bool, Option("-q", heading="output")] = False
    """Print no progress and no notices."""

    def document(self, document: Document, of: object = None, /, **given: object) -> None:
        """Print a document, made of what its fields take, on stdout."""
        text = document.text(of, **given)
        click.echo(text if has_every_character(sys.stdout) else json.dumps(json.loads(text), indent=2))

    def show(self, *renderables: RenderableType) -> None:
        """Print something for people on stdout."""
        console = self.console()
        for renderable in renderables:
            console.print(renderable, crop=False)  # tables keep within the width by themselves; a command stays whole

    def notice(self, *texts: str) -> None:
        """Print lines on stderr, unless `--quiet`."""
        for text in () if self.quiet else texts:
            # Not click.echo: it looks for the stream below sys.stderr, and so writes into a bar that rich draws there.
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    @contextlib.contextmanager
    def byte_progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Yield what takes bytes done and bytes in all: a bar on stderr in a terminal, nothing elsewhere."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _done, _total: None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(binary_units=True))
        with Progress(*columns, TimeRemainingColumn(), console=self.console(stderr=True), transient=True) as progress:
            task = progress.add_task(title, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def console(self, *, stderr: bool = False) -> Console:
        """A rich console; without colours under NO_COLOR and in a redirected stream."""
        from rich.console import Console

        return Console(stderr=stderr, highlight=False, soft_wrap=False)


_NAME = "ggbench_ascii"
"""Of the error handler, and of an encoding that click leaves alone: for `ascii` it writes UTF-8. Source:
`_is_compat_stream_attr` and `_stream_is_misconfigured` in click/_compat.py."""


def open_closed() -> None:
    """Point each stream that is closed at the null device, so that no other file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
        if getattr(sys, name) is None:
            stream = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def has_every_character(stream: TextIO) -> bool:
    """Return whether a stream can write any text."""
    return not stream.encoding or codecs.lookup(stream.encoding).name.startswith("utf")


def spell_missing() -> None:
    """Let stdout and stderr spell what their encoding lacks, instead of failing at it."""
    codecs.register_error(_NAME, _spelled)
    codecs.register(_find)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not has_every_character(stream):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_NAME if is_ascii else stream.encoding, errors=_NAME)


class _Encoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:
        return in_ascii(text).encode()


def _find(name: str) -> codecs.CodecInfo | None:
    if name != _NAME:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        incrementalencoder=_Encoder,
        incrementaldecoder=ascii_codec.incrementaldecoder,
        name=_NAME,
    )


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end
