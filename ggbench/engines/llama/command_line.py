"""Read llama-server's options as people write them, and say which of them are ggbench's.

`server_options.csv` has those of the llama.cpp that ggbench was tested with, as `scripts/record_options` took them from
`llama-server --help`. An option is ggbench's if a command has one of its spellings, or `own` says how it is written.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import UNSET, changed_flags
from ggbench.errors import UnknownName, UsageError
from ggbench.fields import defaults_of, options_of
from ggbench.record import Record
from ggbench.text import shell_path, shorten

MOST_CHARACTERS = 20_000
TRUE, FALSE = ("on", "enabled", "true", "1"), ("off", "disabled", "false", "0")
"""Source: `is_truthy` and `is_falsey` in common/arg.cpp."""
_BARE = "write -fa on: without a value it takes the next word for one"
_SECRETS = ("--api-key", "--hf-token")


class ServerOption(Record):
    """An option of llama-server."""

    on: tuple[str, ...]
    """Its spellings."""
    off: tuple[str, ...]
    """Those that switch it off."""
    n_values: int
    env: str
    """The environment variable that also sets it; empty without one."""
    gone: str
    """Why llama-server refuses it, or what does its work; empty for one that it has."""
    role: Literal["", "model", "uncounted", "check", "idle"]
    """Whether it names the model, concerns memory or speed and is in no plan, is for checks alone, or does nothing."""
    own: Mapping[str, tuple[str, ...]]
    """ggbench's words by value, `on` or `off`; `*` is any value. Empty where the option is ggbench's, or has no effect.
    """

    @property
    def name(self) -> str:
        return self.on[-1]

    @property
    def spellings(self) -> tuple[str, ...]:
        return (*self.on, *self.off)


class Given(Record):
    """An option as it was given."""

    option: ServerOption
    flag: str
    """The spelling that was typed; the first for a variable."""
    values: tuple[str, ...] = ()
    gone: str = ""
    """Why llama-server refuses it, or takes it otherwise; empty if it does neither."""

    @property
    def is_off(self) -> bool:
        return self.flag in self.option.off

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words as typed, without a key or a token."""
        return self.flag, *("***" if self.option.name in _SECRETS else each for each in self.values)

    @property
    def words_today(self) -> tuple[str, ...]:
        """The words without what llama-server refuses, or what does its work."""
        words = self.own_words(set()) if self.option.gone else self.words
        return () if not words or server_options()[words[0]].gone else tuple(words)

    def own_words(self, own: set[str]) -> list[str] | None:
        """Return it as a command writes it that has the options `own`; None if it has no effect there."""
        option = self.option
        if option.own:
            return self._translated
        spellings = option.off if self.is_off else option.on
        alike = [each for each in spellings if each in own]
        if alike:
            return [alike[0], *self.values]
        return [] if not option.n_values and not own.isdisjoint(option.spellings) else None

    @property
    def _translated(self) -> list[str] | None:
        switched = "off" if self.is_off else "on"
        words = self.option.own.get(self.value or switched, self.option.own.get("*"))
        if words is None:
            return None
        return [self.value if each == "*" else each for each in words]


@functools.cache
def server_options() -> Mapping[str, ServerOption]:
    """Return llama-server's options by each of their spellings."""
    text = (files("ggbench.engines.llama") / "server_options.csv").read_text(encoding="utf-8")
    found = dict[str, ServerOption]()
    for row in csv.DictReader(text.splitlines()):
        written = (each.partition(":") for each in row.pop("own").split())
        own = {value: tuple(filter(None, words.split(","))) for value, _, words in written}
        split = {name: row.pop(name).split() for name in ("on", "off")}
        option = msgspec.convert({**row, **split, "own": own}, ServerOption, strict=False)
        found |= dict.fromkeys(option.spellings, option)
    return found


def take_option(words: list[str]) -> Given | None:
    """Take an option with its values off the words; None, and nothing, if they do not begin with one.

    Long ones may have `_` for `-`. Raises UsageError if a value is missing.
    """
    flag = words[0].replace("_", "-") if words[0].startswith("--") else words[0]
    option = server_options().get(flag)
    if option is None:
        return None
    del words[0]
    if option.name == "--flash-attn" and (not words or words[0].lower() not in (*TRUE, *FALSE, "auto", "-1")):
        return Given(option, flag, ("on",), _BARE)
    if len(words) < option.n_values:
        raise UsageError(f"{flag} lacks its value", "llama-server --help shows its options")
    values = tuple(words[: option.n_values])
    del words[: option.n_values]
    if option.name == "--spec-type" and values == ("mtp",):
        return Given(option, flag, ("draft-mtp",), "its value is draft-mtp")
    return Given(option, flag, values, option.gone)


def in_own_words(args: Sequence[str], own: set[str]) -> tuple[list[str], list[str]]:
    """Return a command's arguments with llama-server's options as those in `own`, and the options without an effect.

    What the command has itself keeps its own meaning, but for values that only llama-server has.
    """
    left, words, idle = list(args), list[str](), list[str]()
    while left and left[0] != "--":
        given = take_option(left) if _is_translated(left[0], own) else None
        if given is None:
            words.append(left.pop(0))
            continue
        found = given.own_words(own)
        if found is None and given.flag in own:
            found = [given.flag, *given.values]
        words += found or []
        idle += [given.flag] if found is None else []
    return [*words, *left], idle


def _is_translated(word: str, own: set[str]) -> bool:
    """Return whether a word is read as llama-server's; a setting of ggbench that a command lacks is left to refuse."""
    known = server_options().get(word)
    if known is None:
        return word not in own
    if known.own:
        return word not in own or not known.gone
    is_refused = own.isdisjoint(known.spellings) and not _FIELDS.keys().isdisjoint(known.spellings)
    return word not in own and not is_refused


class CommandLine(Record):
    """A llama-server command, as pasted."""

    program: tuple[str, ...]
    """The words before its options, from those that start a container on."""
    given: tuple[Given, ...]

    def last(self, *names: str) -> Given | None:
        """Return the last of these options, by their last spellings; None without any."""
        return next((each for each in reversed(self.given) if each.option.name in names), None)

    def value(self, *names: str) -> str:
        """Return the value of the last of these options; empty if none was given."""
        found = self.last(*names)
        return "" if found is None else found.value

    @property
    def is_published(self) -> bool:
        """Whether it names a model of the Hub, not a file."""
        found = self.last("--model", "--hf-repo", "--model-url")
        return found is not None and found.option.name != "--model"

    @property
    def model(self) -> str:
        """The model as MODEL takes it: a path, or `org/name:QUANT`; empty if the command names none."""
        named, file = self.value("--model", "--hf-repo", "--model-url"), self.value("--hf-file")
        return f"{named.partition(':')[0]}:{file}" if file and self.is_published else named

    @property
    def uncounted(self) -> tuple[str, ...]:
        """What concerns memory or speed, and is not counted."""
        return tuple(dict.fromkeys(each.flag for each in self.given if each.option.role == "uncounted"))

    @property
    def is_placed(self) -> bool:
        """Whether it says which layers or tensors are on a GPU, so that `--fit` moves none."""
        names = ("--override-tensor", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--tensor-split")
        return self.value("--n-gpu-layers") not in ("", "auto", "-1") or self.last(*names) is not None

    @property
    def fits(self) -> bool:
        """Whether llama-server adapts what is not given to the memory, as by default."""
        return self.value("--fit").lower() not in FALSE and self.value("--split-mode") != "tensor"

    @property
    def settings(self) -> dict[str, str]:
        """What it gives of LlamaConfig, by field, as a command of ggbench has it; a switch is `on` or `off`."""
        written = [(each, each.own_words(set(_FIELDS)) or [""]) for each in self.given]
        return {
            _FIELDS[flag]: (*values, "off" if each.is_off else "on")[0]
            for each, (flag, *values) in written
            if flag in _FIELDS
        }

    def words(self, own: set[str]) -> tuple[list[str], list[str]]:
        """Return its options, but the model, as a command has them with the options `own`, and those without effect."""
        found = [(each, each.own_words(own)) for each in self.given if each.option.role in ("", "uncounted")]
        idle = [each.flag for each, words in found if words is None and not each.gone and not each.option.role]
        return [word for _, words in found for word in words or ()], list(dict.fromkeys(idle))

    def changed(self, before: LlamaConfig, after: LlamaConfig) -> str:
        """Return the command with the options that differ between two setups, and without those that are refused."""
        names = LlamaConfig.__struct_fields__
        fields = {each for each in names if getattr(before, each) != getattr(after, each)} | {"mmap"}
        fields |= _OF_EXPERTS if fields & _OF_EXPERTS else set()
        kept = [
            word
            for each in self.given
            if fields.isdisjoint(map(_FIELDS.get, each.option.spellings))
            for word in each.words_today
        ]
        base = replace(LlamaConfig(), n_gpu_layers=UNSET, n_seq_max=0)
        return " ".join(map(_quoted, [*self.program, *kept, *changed_flags(after, base, fields)]))


def _quoted(word: str) -> str:
    """Quote a word for a POSIX shell, but for `~` and the variables in it, which are the user's to spell out."""
    if "$" not in word:
        return shell_path(word)
    escaped = re.sub(r'(["`\\])', r"\\\1", word)
    return f'"{escaped}"'


_OF_EXPERTS = {"cpu_moe", "n_cpu_moe", "override_tensor"}
_FIELDS = {
    flag: field
    for field, option in options_of(LlamaConfig).items()
    for flag in option.flags_of(field, defaults_of(LlamaConfig).get(field))
} | {"--load-mode": "mmap", "--draft-max": "spec_draft_n_max"}
"""Fields by the flags of their options."""

_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_REMARK = re.compile(r"(?m)^[ \t]*#.*$")
_AS_TYPED = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "–": "-", "−": "-", "\u00a0": " ", "\u200b": None}
)
"""What editors of forums put for plain characters."""
_WINDOWS = re.compile(r"\.exe\b|(?:^|[\s\"'])(?:[A-Za-z]:|\.)\\", re.IGNORECASE)
_VARIABLE = re.compile(r"(?:--env=)?(?P<name>\w+)=(?P<value>.*)", re.DOTALL)
_SERVER = re.compile(r"(?:.*[/\\])?llama-server(?:\.exe)?", re.IGNORECASE)
_APP = re.compile(r"(?:.*[/\\])?llama", re.IGNORECASE)
"""The program that serves by its command `serve`, or `server`."""
_STARTERS = ("sudo", "env", "exec", "nice", "nohup", "numactl", "taskset", "time")
_IMAGE = re.compile(r"(?:[\w.-]+/)*[\w.-]*llama[\w.-]*:[\w.-]+", re.IGNORECASE)
"""An image of a container, `ghcr.io/ggml-org/llama.cpp:server-cuda`, whose entry point is llama-server."""
_PART = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?!(?<=\s)(?:[12]>|#))[^;|&<>])+""", re.DOTALL)
"""A command of several: in a shell a sign ends it, a redirection or a remark, unless it is quoted."""


def parse_command(text: str) -> CommandLine:
    """Parse a pasted command that starts llama-server, with the variables before it, in a shell or a container.

    Raises UsageError for anything else, UnknownName for an option that llama-server does not have.
    """
    earlier = list[str]()
    for words in _commands(text):
        start = _start(words)
        if start is not None:
            break
        earlier += words
    else:
        raise UsageError(
            f"{shorten(text, 60)!r} is no llama-server command",
            "paste the whole line, as in: llama-server -m model-q4_k_m.gguf -c 16384",
        )
    before, left = words[:start], words[start:]
    program = [left.pop(0)]
    set_before = map(_VARIABLE.fullmatch, [*earlier, *before])
    variables = {match["name"]: match["value"] for match in set_before if match}
    if _IMAGE.fullmatch(program[0]):
        program = [*_kept(before), *program]
        if _start(left) == 0 or left[:1] in (["--server"], ["-s"]):
            program.append(left.pop(0))
    else:
        is_served = left[:1] in (["serve"], ["server"])
        program = [*itertools.dropwhile(_is_prose, _kept(before)), *program, *left[:is_served]]
        del left[:is_served]
    return CommandLine(tuple(program), (*_of_variables(variables), *_of_words(left)))


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a text, in plain characters, without remarks. Raises UsageError."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"more than {MOST_CHARACTERS:,} characters are no command line",
            "paste the line that starts llama-server",
        )
    text = _REMARK.sub("", _CONTINUED.sub(" ", text.translate(_AS_TYPED))).strip()
    if not text:
        raise UsageError(
            "the command line is empty", "paste one: ggbench check 'llama-server -m model.gguf -c 16384'"
        )
    if any(not (each.isprintable() or each.isspace()) for each in text):
        raise UsageError("the command line has control characters", "paste it as text")
    for part in _PART.findall(text.replace("\\", "\\\\") if _WINDOWS.search(text) else text):
        try:
            yield shlex.split(part)
        except ValueError:
            raise UsageError(f"unbalanced quotes in {shorten(text, 60)!r}", "paste the whole line") from None


def _start(words: Sequence[str]) -> int | None:
    """Return the index of the image that `run` starts, else of the program; None without either.

    A repo, `-hf org/Llama-3:q4_k_m`, looks like an image.
    """
    images = (index for index, word in enumerate(words) if "run" in words[:index] and _IMAGE.fullmatch(word))
    programs = (
        index
        for index, (word, after) in enumerate(itertools.pairwise([*words, ""]))
        if _SERVER.fullmatch(word) or (after in ("serve", "server") and _APP.fullmatch(word))
    )
    return next(itertools.chain(images, programs), None)


def _is_prose(word: str) -> bool:
    """Return whether a word before the program does not begin what it is started by, such as `sudo` or a variable."""
    return word not in _STARTERS and not _VARIABLE.fullmatch(word)


def _kept(before: Sequence[str]) -> list[str]:
    """Return the words of the command before the program, without variables that are options of llama-server."""
    names, kept = {each.env for each in server_options().values() if each.env}, list[str]()
    for word in before:
        variable = _VARIABLE.fullmatch(word)
        if variable is None:
            kept.append(word)
        elif variable["name"].replace("_NO_", "_") not in names:
            is_secret = re.search("TOKEN|KEY|SECRET|PASSWORD", variable["name"].upper())
            kept.append(word.removesuffix(f"={variable['value']}") if is_secret else word)
        elif kept and kept[-1] in ("-e", "--env"):
            kept.pop()
    return kept


def _of_variables(variables: Mapping[str, str]) -> Iterator[Given]:
    """Yield the options that variables set, as llama.cpp reads them; not keys and tokens, which stay variables.

    Source: `common_arg::get_value_from_env` in common/arg.cpp.
    """
    for option in {each.name: each for each in server_options().values() if each.env}.values():
        value = variables.get(option.env)
        is_off = option.off and option.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") in variables
        if is_off or (option.off and value is not None and value.lower() not in TRUE):
            yield Given(option, option.off[0])
        elif value is not None and option.n_values and option.name not in _SECRETS:
            yield Given(option, option.on[0], (value,), option.gone)
        elif value is not None and value.lower() in TRUE:
            yield Given(option, option.on[0])


def _of_words(words: Iterable[str]) -> Iterator[Given]:
    """Yield the options of a server's words. Raises UsageError."""
    left = list(words)
    while left:
        given = take_option(left)
        if given is None and left[0].startswith("-"):
            raise UnknownName("option of llama-server", shorten(left[0], 60), server_options())
        if given is None:
            raise UsageError(
                f"{shorten(left[0], 60)!r} belongs to no option", "llama-server takes a file as -m FILE"
            )
        yield given
