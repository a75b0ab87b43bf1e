"""`ggbench doctor`: what ggbench sees of this machine, and what to do about it."""

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
@option("--with-paths", "Show whole paths, the Hub's address and serial numbers of GPUs.", is_flag=True)
@output_options
def command(with_paths: bool, output: Output) -> None:
    """Look at llama.cpp, the machine and ggbench's own files, and say what to do about what is wrong.

    Looked at are llama.cpp's build (instruction sets and backends that the machine has and the build lacks, CUDA
    against the driver), GPUs and the programs on them, the CPU's governor, huge pages, memory and its limits, disk
    room, the results file, the Hub's token (where it is, never what it is) and what was calibrated. A problem makes
    something fail; advice makes measurements faster or surer. Nothing is measured, changed or requested from the
    network.

    The answer is Markdown to paste into a bug report: without names of users, hosts and servers, and with folders from
    the home folder on.
    """
    from ggbench.decisions.doctor.checkup import check_machine, findings
    from ggbench.decisions.doctor.show import DOCTOR, checkup_text, shown_checkup
    from ggbench.show.anonymous import Paths, home_folder

    checkup, paths = check_machine(), Paths(home_folder(), whole=with_paths)
    found = findings(checkup, paths)
    if output.as_json:
        output.document(DOCTOR, shown_checkup(checkup, paths), findings=found)
    else:
        click.echo(checkup_text(checkup, found, paths))
