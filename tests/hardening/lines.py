"""Command lines as forums, shells, editors and malice leave them, through `check`."""

import io
import random
import shlex
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from unittest import mock

from ggbench.engines.llama.command_line import MOST_CHARACTERS, server_options
from tests.fakes.kept_worker import _answers
from tests.hardening.damage import MUTATIONS, damaged
from tests.hardening.served import kept_worker, served_hub
from tests.hardening.trials import Trials

_LINES = Path(__file__).parent.parent / "data" / "command_lines.toml"
_MACHINES = (("--gpu", "rtx-3060", "--ram", "64GiB@50GB/s"), ("--gpu", "24GiB@900GB/s,8GiB@300GB/s"), ())
_FORMS = ((), (), ("--json",), ("--md", "--why"))
_WITHIN_S = 30.0
"""For one line: what it takes to plan a large model a dozen times on a busy machine."""
_VALUES = (
    "", " ", "-1", "0", "1", "99999999999999999999", "1e308", "1e-9", "nan", "inf", "0x10", "1_000", "٣", "²", "1.5",
    "true", "on", "auto", "off", ",", ",,", "1,", "=", "a=b", "-", "--", "---", "~", "~nobody/x.gguf", "/", "/dev/null",
    "/dev/zero", ".", "..", "\u202e", "\u200b", "é" * 300, "👩\u200d👩\u200d👦", "\ud800", "x" * 9000, "%s%n", "[", "(",
    "*", ".*=CPU", "(=CPU", "[a-=CUDA0", "(a+)+$=CPU", "=CPU", "q8_0,f16", "CUDA0", "none", "https://127.0.0.1:9/x.gguf",
    "org/name", "org/name:Q4_K_M", "a/b/c/d", ":", "x:y:z", "twin:qwen1.5-0.5b", "transformers:org/name", "user:***@h",
    "$HOME/m.gguf", "${X}", "$(id)", "`id`", "%USERPROFILE%\\m.gguf", "C:\\m\\q.gguf", "\\\\host\\share\\m.gguf", "\\",
)  # fmt: skip
_SIGNS = (
    "'", '"', "`", "\\", "\\\n", "^\n", "\n", "\r\n", "\t", "\0", "\x1b[2J", "\x7f", "#", "# x\n", ";", "|", "&&",
    "<", "<<EOF\n", ">", "2>&1", "(", ")", "$(", "${", "!", "“", "”", "—", "\u00a0", "\u2028", "\ufeff", "\u202e",
)  # fmt: skip


def damaged_lines(n: int, draw: random.Random) -> Trials:
    """Check damaged commands: each ends in a verdict, or in one line of what is wrong, and soon."""
    row = Trials("damaged command lines, checked")
    sound = [each["line"].strip() for each in tomllib.loads(_LINES.read_text("utf-8"))["line"]]
    slowest, ends = (0.0, ""), Counter[int]()
    with kept_worker(), served_hub():
        for number in range(n):
            label = list(_DAMAGES)[number % len(_DAMAGES)]
            text = _DAMAGES[label](draw, draw.choice(sound))
            words = [*draw.choice(_MACHINES), *draw.choice(_FORMS)]
            began = time.monotonic()
            ends[_check(row, f"{label}: {text[:300]!r} {words}", text, words, by_stdin=not draw.randrange(8))] += 1
            slowest = max(slowest, (time.monotonic() - began, f"{text[:300]!r} {words}"))
            if len(_answers) > 2000:
                _answers.clear()
    row.said = [f"exit codes: {dict(ends)}", f"the slowest took {slowest[0]:.1f} s: {slowest[1]}"]
    return row


def _check(row: Trials, label: str, text: str, words: list[str], *, by_stdin: bool) -> int:
    """Return the exit code; 1 if it did not end."""
    content = text.encode("utf-8", "surrogatepass")
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8")):
        line = "-" if by_stdin else content.decode("utf-8", "surrogateescape")
        ran = row.run(label, "check", *words, "--", line, limit_s=_WITHIN_S)
    if ran is None:
        return 1
    n_said = sum(each.startswith("Error: ") for each in ran.err.splitlines())
    if ran.code == 1 or n_said != (not ran.out) or (not ran.out and ran.err.count("\n") > 4):
        row.fault(f"{label}: exit code {ran.code}, {n_said} errors, {ran.err[:300]!r}")
    return ran.code


def _words_of(line: str) -> list[str]:
    return shlex.split(line.replace("\\\n", " "), comments=True)


def _without_value(draw: random.Random, line: str) -> str:
    words = _words_of(line)
    del words[draw.randrange(len(words))]
    return shlex.join(words)


def _other_value(draw: random.Random, line: str) -> str:
    words = _words_of(line)
    words[draw.randrange(len(words))] = draw.choice(_VALUES)
    return shlex.join(words)


def _other_options(draw: random.Random, line: str) -> str:
    """Append options of llama-server with values that are none, or too few, or too many."""
    given = list[str]()
    for _ in range(draw.randint(1, 4)):
        flag = draw.choice(list(server_options()))
        flag = draw.choice((flag, flag, flag.replace("-", "_"), flag.upper(), f"-{flag}"))
        given += [flag, *draw.choices(_VALUES, k=draw.choice((0, 1, 1, 1, 2)))]
    return f"{line} {shlex.join(given)}"


def _sign_somewhere(draw: random.Random, line: str) -> str:
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(line) + 1)
        line = line[:at] + draw.choice(_SIGNS) * draw.choice((1, 1, 1, 50)) + line[at:]
    return line


def _in_a_container(draw: random.Random, line: str) -> str:
    names = [each.env for each in server_options().values() if each.env]
    variables = [f"{draw.choice(names)}={draw.choice(_VALUES)}" for _ in range(draw.randint(0, 4))]
    image = draw.choice(("ghcr.io/ggml-org/llama.cpp:server-cuda", "llama.cpp:full", "llama:", ":", "x/llama@sha256:1"))
    given = [word for each in variables for word in draw.choice((("-e", each), (f"--env={each}",), ("-e",)))]
    command = ["docker", "run", "--gpus", "all", *given, "-v", "/m:/models", image]
    draw.shuffle(command if not draw.randrange(4) else given)
    return shlex.join([*command, *_words_of(line)[draw.choice((0, 1)) :]])


def _with_variables(draw: random.Random, line: str) -> str:
    names = [each.env for each in server_options().values() if each.env]
    given = [f"{draw.choice(names)}={shlex.quote(draw.choice(_VALUES))}" for _ in range(draw.randint(1, 5))]
    return " ".join([*draw.choice(((), ("env",), ("export",), ("sudo", "-E"))), *given, line])


def _mixed(draw: random.Random, line: str) -> str:
    words = _words_of(line)
    draw.shuffle(words)
    return shlex.join(words)


def _huge(draw: random.Random, line: str) -> str:
    n_chars = draw.choice((MOST_CHARACTERS - 1, MOST_CHARACTERS, MOST_CHARACTERS + 1, 100 * MOST_CHARACTERS))
    return f"{line} {draw.choice((*_VALUES[:9], *_SIGNS, ' -ot a=CPU', ' -c 1', ' -ts 1,1', 'x'))}".ljust(n_chars, "7")


def _repeated(draw: random.Random, line: str) -> str:
    piece = draw.choice((line, " -c 4096", " -ot .*=CPU", " -ngl", " ;", " 'a'", " -m x", " --", " serve", " \\\n"))
    return f"{line} {piece * (MOST_CHARACTERS // len(piece) // draw.choice((1, 1, 10)))}"[:MOST_CHARACTERS]


def _in_bytes(draw: random.Random, line: str, kind: str) -> str:
    return damaged(line.encode(), draw, kind).decode("utf-8", "surrogateescape")


_DAMAGES: Mapping[str, Callable[[random.Random, str], str]] = {
    "a word lost": _without_value, "another value": _other_value, "other options": _other_options,
    "a sign": _sign_somewhere, "a container": _in_a_container, "variables": _with_variables, "mixed": _mixed,
    "huge": _huge, "repeated": _repeated,
    "options and signs": lambda draw, line: _sign_somewhere(draw, _other_options(draw, line)),
    "values and options": lambda draw, line: _other_options(draw, _other_value(draw, line)),
    **{kind: partial(_in_bytes, kind=kind) for kind in MUTATIONS},
}  # fmt: skip
