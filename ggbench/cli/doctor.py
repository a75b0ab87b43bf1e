"""`ggbench doctor`: the state of this machine, and advice."""

from __future__ import annotations

import click
from msgspec.structs import replace

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import output_options
from ggbench.commands.output import Output


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench doctor
    ggbench doctor --md --why
    """,
)
@output_options
def command(output: Output) -> None:
    """Check llama.cpp, this machine and ggbench's own files, and say how to fix what is wrong.

    It checks llama.cpp's build, NVIDIA's driver, programs that use a GPU, disk space and the results file. Problems
    make something fail; advice makes measurements faster or more reliable. Nothing is measured or changed, and no
    network is used.

    --md --why is what to paste into a bug report; ~ stands for your home folder.
    """
    from ggbench.decisions.doctor.checkup import check_machine
    from ggbench.decisions.doctor.findings import findings
    from ggbench.decisions.doctor.show import DOCTOR, checkup_answer

    checkup = check_machine()
    checkup = replace(checkup, findings=findings(checkup))
    output.either(DOCTOR, checkup, checkup_answer(checkup))
