"""`ggbench profile`: measure this machine once."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, output_options
from ggbench.commands.output import Output

_NOISY = 0.1
"""Noise above which the profile is said to be disturbed."""


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench profile
    ggbench profile -o office.json
    ggbench plan qwen3-14b --machine office.json
    """,
)
@option("-o --output path", "File to write. Default: one named after the device, in the current folder.", PATH,
        metavar="FILE")  # fmt: skip
@option("--force", "Overwrite the file.", is_flag=True)
@output_options
def command(path: Path | None, force: bool, output: Output) -> None:
    """Measure this machine on small twins, and write a device profile: about 10 kB of JSON.

    plan, pick and forecast with --machine FILE then answer for this machine: its memory, and the speed of any model
    with an interval, also elsewhere, offline, and for models that do not exist yet. Timed are each tensor type for
    batches of 1 to 8 tokens and for prompts, attention by type of KV cache, layers and experts, on each kind of GPU and
    on the CPU. It takes a minute or two for each; leave the machine idle. The profile has no path, name of the host or
    serial number.
    """
    from ggbench.files import check_free, write_as, write_new
    from ggbench.show.profile import PROFILE, profile_report
    from ggbench.sizing.profiling import take_profile
    from ggbench.units import format_number

    if path is not None:
        check_free(path, force=force)
    is_terminal = sys.stderr.isatty()
    profile = take_profile(lambda text: output.notice(text) if is_terminal else None)
    if path is not None:
        write_as(path, profile.encode(), force=force)
    elif not output.as_json:
        name = (profile.devices or (profile.host,))[0].name
        path = write_new(
            Path(), re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "machine", ".json", profile.encode()
        )
    if output.as_json:
        output.document(PROFILE, profile)
    else:
        output.show(profile_report(profile, width=output.console().width))
        click.echo(f"Written: {path}")
    if profile.noise > _NOISY:
        noise = format_number(100 * profile.noise, 2)
        output.notice(f"Other programs disturbed the timings by {noise} %: close them and take it again")
