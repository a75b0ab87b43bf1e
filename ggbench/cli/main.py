"""The entry point: find the command, and turn every error into two lines and an exit code.

A command's module is imported only when that command runs, so that `--help` stays fast.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from ggbench import __version__
from ggbench.cli.help import TOPICS
from ggbench.commands.process import discard_output, escape_missing, open_closed, stoppable
from ggbench.errors import ExitCode, GgbenchError, UnknownName
from ggbench.machine.address_space import forbid_core_files
from ggbench.plugins import plugin_names
from ggbench.text import sanitize, shorten

GROUPS = {
    "Choose": {
        "pick": "The quant and KV cache to run, why, and the commands for it.",
        "plan": "Memory, speed and loss of each quant, without downloading.",
        "check": "Does a llama-server command fit here, and what does it waste?",
        "forecast": "Predict a model's speed from a few layers, without its file.",
        "speculate": "Whether a draft model pays here, before the download.",
        "limits": "Theoretical limits of a GPU: context, prefill knees, W and B.",
        "published": "Published measurements of other systems.",
    },
    "Measure": {
        "bench": "Every quant of a model in one table: memory, prefill, W and B.",
        "decode": "Time every token of a long decode, and fit W and B.",
        "prefill": "Time prompts of several lengths.",
        "speed": "Tokens/s and memory by input length and batch size.",
        "maxctx": "Find and prove the largest n_ctx with real allocations.",
        "quality": "Quality lost by a quant: perplexity, KL divergence from a base.",
        "tune": "The settings that beat the defaults, with the gain's interval.",
    },
    "Results": {
        "results": "List, show and remove stored runs.",
        "compare": "Which run is better, in which metric, and by how much.",
        "report": "One HTML file of stored runs, or their table as CSV.",
        "export": "Stored runs as llama-bench's files, as CSV, or whole.",
        "import": "Read results of llama-bench, or whole runs.",
    },
    "Models and files": {
        "models": "The models of the catalog and on this disk.",
        "inspect": "Contents of a GGUF file: metadata, tensor types, BPW.",
        "pull": "Download quants from the Hub, resumable and verified.",
        "twin": "Write twins: a model's true shape, without trained weights.",
    },
    "Also": {
        "tui": "Choose, measure and compare in a terminal interface.",
        "demo": "A tour in a minute, without a network.",
        "doctor": "Check this machine and say how to fix problems.",
        "help": "Help of a command or a topic.",
    },
}
"""Every built-in command with its one line of help, by heading."""
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
_EXPERIMENTS = "ggbench.experiments"
_ELSEWHERE = {"tui": "ggbench.tui.entry_point:command", "import": "ggbench.cli.export:import_command"}
"""Commands whose module has another name. The TUI is found by name, since neither front end imports the other."""
_NO_MEMORY = "not enough memory for ggbench itself"
_NO_TEMPORARY = "No usable temporary directory"
"""The only way to recognize the error. Source: `_get_default_tempdir` in CPython's tempfile."""
_OF_OTHERS = ("--gpu", "--vram", "--ram")
"""Options that describe another machine."""
_BAD_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
"""Names that no file can have."""


def _groups() -> dict[str, dict[str, str]]:
    """Return `GROUPS` and the commands of further experiments, with the first line of their packages' docstrings."""
    others = [name for name in plugin_names(_EXPERIMENTS, "command") if name not in COMMANDS]
    texts = {name: importlib.import_module(f"{_EXPERIMENTS}.{name}").__doc__ or "" for name in others}
    return GROUPS | {
        "Measure": GROUPS["Measure"] | {name: text.partition("\n")[0] for name, text in texts.items()}
    }


def _commands() -> dict[str, str]:
    return {name: text for commands in _groups().values() for name, text in commands.items()}


class _LazyGroup(click.Group):
    """Commands by name, each imported when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (known := _commands()):
            return None
        is_experiment = cmd_name in plugin_names(_EXPERIMENTS, "command")
        own = f"{_EXPERIMENTS}.{cmd_name}.command" if is_experiment else f"ggbench.cli.{cmd_name}"
        module, _, name = _ELSEWHERE.get(cmd_name, own).partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        command.short_help = known[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in _groups().items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<9}", text) for name, text in commands.items()])
        with formatter.section("Topics (ggbench help TOPIC)"):
            formatter.write_dl([(f"{name:<9}", text) for name, text in TOPICS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _commands() and not ctx.resilient_parsing:
            raise UnknownName("command", args[0], _commands())
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True},
)
@click.version_option(__version__, message="ggbench %(version)s")
def cli() -> None:
    """Which GGUF should I run on this machine, how long can its context be, and how fast will it be?

    Start with ggbench demo, then ggbench pick. See ggbench COMMAND --help for examples.
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    gc.set_threshold(50_000)  # importing creates many objects but no garbage
    open_closed()
    escape_missing()
    if not os.environ.get("GGBENCH_DEBUG"):
        forbid_core_files()
    with stoppable():
        try:
            status = _run(args)
        except KeyboardInterrupt:  # a second interrupt, while the first was being reported
            status = ExitCode.INTERRUPTED
        except BrokenPipeError:
            status = ExitCode.PIPE_CLOSED
        except MemoryError:  # even an error message would need memory
            os.write(2, f"Error: {_NO_MEMORY}\n".encode())
            status = ExitCode.DOES_NOT_FIT
    if status == ExitCode.PIPE_CLOSED:
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                discard_output(stream.fileno())
    if status == ExitCode.INTERRUPTED:
        # `python -m` kills itself if an interrupt ended an exec(), as in the definition of a dataclass, even if it was
        # caught since; another exec() clears that. Source: CPython 3.11, run_eval_code_obj in pythonrun.c.
        exec("")
    sys.exit(status)


def _run(args: list[str] | None) -> int:
    """Run the command line, print what went wrong, and return the exit code. Raises BrokenPipeError."""
    try:
        if sys.platform == "win32":  # the worker's pipes cannot be awaited there
            raise GgbenchError("ggbench does not run on Windows", "run it in WSL 2")
        status = cli.main(args, prog_name="ggbench", standalone_mode=False)
        sys.stdout.flush()  # here, as the exiting interpreter would complain about a closed pipe
        return status if isinstance(status, int) else ExitCode.DONE
    except SystemExit as end:  # raised by click after a completion, or if a stream's reader is gone
        return ExitCode.PIPE_CLOSED if end.code else ExitCode.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        _greet(error)
        return ExitCode.DONE
    except click.ClickException as error:
        return _fail(error.format_message().rstrip("."), _help_of(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", "", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("GGBENCH_DEBUG"):
            raise
        return _report(error)


def _help_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is not None and getattr(error, "option_name", "") in _OF_OTHERS:
        return f"{context.command_path} is about this machine; ggbench plan and pick --gpu answer for others"
    return f"see: {context.command_path} --help" if context is not None else "see: ggbench --help"


def _greet(error: click.exceptions.NoArgsIsHelpError) -> None:
    """Print what `ggbench` alone prints, else the help of the command."""
    if error.ctx is not None and error.ctx.parent is None:
        from ggbench.cli.welcome import show_welcome

        show_welcome()
    else:
        click.echo(error.format_message())


def _report(error: Exception) -> int:
    if isinstance(error, GgbenchError):
        return _fail(error.message, error.hint, error.exit_code)
    from ggbench.files import FULL_DISK

    number = getattr(error, "errno", None)
    if number in FULL_DISK:
        if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
            discard_output(sys.stdout.fileno())  # otherwise its buffer fails again at exit
        hint = "free some space, or write to another disk"
        return _fail(f"cannot write: {os.strerror(number)}", hint, ExitCode.DOES_NOT_FIT)
    if number in _BAD_NAME:
        name = shorten(str(getattr(error, "filename", "")), 60)
        return _fail(f"{os.strerror(number)}: {name}", "use another name", ExitCode.USAGE)
    if isinstance(error, FileNotFoundError) and _NO_TEMPORARY in str(error):
        hint = "free some space, or set TMPDIR to another disk"
        return _fail("no folder for temporary files can be written", hint, ExitCode.DOES_NOT_FIT)
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        hint = "close other programs; if the shell limits memory, raise the limit: ulimit -v unlimited"
        return _fail(_NO_MEMORY, hint, ExitCode.DOES_NOT_FIT)
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return _fail(f"unexpected, {what}", "GGBENCH_DEBUG=1 shows where; please report it", ExitCode.UNEXPECTED)


def _fail(what: str, hint: str, code: int) -> int:
    click.echo(f"Error: {sanitize(what)}", err=True)
    if hint:
        click.echo(f"Hint: {sanitize(hint)}", err=True)
    return code
