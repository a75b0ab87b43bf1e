"""`ggbench doctor`: the state of this machine, and advice."""

from __future__ import annotations

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import option, output_options
from ggbench.commands.output import Output


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench doctor
    ggbench doctor --json
    """,
)
@option("--with-paths", "Show full paths, the Hub's address and serial numbers of GPUs.", is_flag=True)
@output_options
def command(with_paths: bool, output: Output) -> None:
    """Check llama.cpp, this machine and ggbench's own files, and say how to fix what is wrong.

    It checks: llama.cpp's build (missing instruction sets and backends, CUDA version vs driver), GPUs and the programs
    that use them, the CPU governor, huge pages, memory and its limits, disk space, the results file, catalogs, lists,
    caches, processes that a killed ggbench left, the Hub token (location, never value) and bandwidth calibration.
    Problems make something fail; advice makes measurements faster or more reliable. Nothing is measured or changed, and
    no network is used.

    The output is Markdown to paste into a bug report, without names of users, hosts and servers; folders are shown
    relative to the home folder.
    """
    from ggbench.decisions.doctor.checkup import check_machine, findings
    from ggbench.decisions.doctor.own_files import damaged_files, left_processes
    from ggbench.decisions.doctor.show import DOCTOR, checkup_text, shown_checkup
    from ggbench.show.anonymous import Paths, home_folder

    checkup, paths = check_machine(), Paths(home_folder(), whole=with_paths)
    found = findings(checkup, paths, (*damaged_files(), *left_processes()))
    if output.as_json:
        output.document(DOCTOR, shown_checkup(checkup, paths), findings=found)
    else:
        click.echo(checkup_text(checkup, found, paths))
