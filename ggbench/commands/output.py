"""A command's output: data on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import click

from ggbench.errors import ExitCode, UsageError
from ggbench.fields import Option
from ggbench.record import Record

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ggbench.show.answer import Answer
    from ggbench.show.charts import LineChart
    from ggbench.show.document import Document
    from ggbench.sizing.plan_record import PlanRow


_NO_WIDTH = 4096
"""Columns of a pipe, more than any table has."""


class Output(Record):
    as_json: Annotated[bool, Option("", "Print one JSON document.", heading="output")] = False
    as_markdown: Annotated[
        bool, Option("--md", "Print GitHub's Markdown, to paste into an issue.", heading="output")
    ] = False
    why: Annotated[bool, Option("", "Print also sources, rules, rejected ones, sizes.", heading="output")] = (
        False
    )
    quiet: Annotated[bool, Option("-q", "Print no progress and no notices.", heading="output")] = False
    plot: bool = False
    """Whether to draw the runs, too. Raises UsageError with `--json`."""
    against: str | None = None
    """`published` to show the nearest published rows below the runs."""

    def __post_init__(self) -> None:
        if self.plot and self.as_json:
            raise UsageError("--plot cannot be used with --json", "omit --json, or use results show ID --plot")

    def either(self, document: Document, record: object, answer: Answer) -> None:
        """Print a record with `--json`, else an answer."""
        if self.as_json:
            self.record(document, record)
        else:
            self.answer(answer)

    def record(self, document: Document, record: object) -> None:
        """Print a record as JSON on stdout."""
        text = document.text(record)
        if not (sys.stdout.encoding or "").lower().startswith("utf"):
            text = json.dumps(json.loads(text), indent=2)  # escapes what the encoding may lack
        click.echo(text)

    def answer(self, answer: Answer) -> None:
        """Print an answer on stdout, as Markdown with `--md`, and with what is behind it with `--why`."""
        if self.as_markdown:
            click.echo(answer.markdown(why=self.why))
        else:
            self.show(answer.rich(why=self.why))

    def show(self, *renderables: RenderableType) -> None:
        """Print tables or text on stdout, without trailing blanks; a pipe has no width."""
        console = self.console()
        with console.capture() as captured:
            for renderable in renderables:
                console.print(renderable, crop=False)  # a command line must not be cut
        click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def draw(self, figure: LineChart, height: int) -> None:
        """Draw a figure in the terminal, as wide as it is."""
        from ggbench.show.plot import plot_text

        console = self.console()
        color = console.color_system is not None and not console.no_color
        click.echo(plot_text(figure, console.width, height, color))

    def notice(self, *texts: str) -> None:
        """Print lines on stderr, unless `--quiet`."""
        for text in () if self.quiet else texts:
            # click.echo writes to the stream below sys.stderr, hence into the middle of rich's progress bar
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def console(self, *, stderr: bool = False) -> Console:
        """Return a rich console; NO_COLOR and a redirected stream turn off colours, and a pipe has no width."""
        from rich.console import Console

        console = Console(stderr=stderr, highlight=False, soft_wrap=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _NO_WIDTH
        return console


@contextlib.contextmanager
def status_line(output: Output) -> Iterator[Callable[[str], None]]:
    """Yield what shows a text as progress in a terminal's last line, and nothing elsewhere or with `--quiet`."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda _text: None
        return
    with output.console(stderr=True).status("") as status:
        yield status.update


DOWNLOAD_INTERRUPTED = "interrupted; the downloaded part is kept, and the same command continues from there"


@contextlib.contextmanager
def interruptible(output: Output) -> Iterator[None]:
    """Print that nothing is lost, and exit with 130, on Ctrl-C during Hub requests."""
    try:
        yield
    except KeyboardInterrupt:
        output.notice(DOWNLOAD_INTERRUPTED)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def plan_exit_code(rows: Iterable[PlanRow], *, misses: bool) -> ExitCode:
    """Return the exit code for sized quants; `misses` means that none of them meets the request."""
    from ggbench.engines.endings import Outcome

    rows = list(rows)
    if all(row.n_params is None for row in rows):
        return ExitCode.BAD_FILE
    if all(row.outcome is not Outcome.COMPLETED for row in rows):
        return ExitCode.ENGINE_FAILED
    return ExitCode.DOES_NOT_FIT if misses else ExitCode.DONE
