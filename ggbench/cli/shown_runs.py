"""Rows with their stored samples, as the commands show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggbench.cli.output import Output
from ggbench.store.database import Store

if TYPE_CHECKING:
    from ggbench.report.plot.series import LatencySeries

_PLOT_HEIGHT = 18


def run_document(row: Row, *, samples: bool) -> dict[str, object]:
    """The row as JSON has it, with its raw samples where asked for."""
    from ggbench.report.documents import row_document

    fields = row_document(row)
    if samples and row.run_id is not None:
        with Store.open() as store:
            stored = store.load_samples(row.run_id)
        fields |= {
            "repeat": stored.repeat.tolist(),
            "position": stored.position.tolist(),
            "step_ns": stored.step_ns.tolist(),
            "sample_ns": None if stored.sample_ns is None else stored.sample_ns.tolist(),
        }
    return fields


def show_run(row: Row, output: Output, *, plot: bool) -> None:
    """One row in full, with its plot where asked for."""
    from ggbench.report.terminal.row_details import row_details

    output.show(row_details(row))
    if plot:
        _show_plot([row], output)


def show_rows(rows: Sequence[Row], output: Output, *, text_format: str, plot: bool) -> None:
    """A table in one of its forms; the plot goes under it."""
    from ggbench.report.columns import bench_columns

    if text_format == "csv":
        from ggbench.report.text import rows_as_csv

        click.echo(rows_as_csv(rows), nl=False)
    elif text_format == "md":
        from ggbench.report.text import rows_as_markdown

        click.echo(rows_as_markdown(rows, bench_columns(rows)), nl=False)
    else:
        from ggbench.report.terminal.rows_table import rows_table

        output.show(rows_table(rows, bench_columns(rows), width=output.console().width))
    if plot:
        _show_plot(rows, output)


def against_document(row: Row) -> dict[str, object]:
    """The nearest published rows as JSON has them, in one more field of the row."""
    from ggbench.report.against import against_document as document

    return document(row)


def show_against(rows: Sequence[Row], output: Output) -> None:
    """The nearest published rows under each of these."""
    from ggbench.report.terminal.against import against_tables

    click.echo()
    output.show(against_tables(rows))


def _show_plot(rows: Sequence[Row], output: Output) -> None:
    from ggbench.report.plot.terminal import latency_plot

    console = output.console()
    series = _series(rows)
    if series:
        color = console.color_system is not None and not console.no_color
        click.echo(latency_plot(series, width=console.width, height=_PLOT_HEIGHT, color=color))


def _series(rows: Sequence[Row]) -> list[LatencySeries]:
    from ggbench.report.plot.series import measured_series

    series = []
    with Store.open() as store:
        for row in rows:
            if row.run_id is not None and row.n_gen:
                samples = store.load_samples(row.run_id)
                series.append(measured_series(row.quant, samples.position, samples.step_ns, row.fit, row.limit))
    return series
