"""Read llama-server's options as people write them, and say which of them are ggbench's.

`server_options.csv` has those of the llama.cpp that ggbench was tested with, as `scripts/record_options` took them from
`llama-server --help`. An option is ggbench's if a command has one of its spellings; what else concerns memory or speed
is translated here, and the rest has no effect on a plan.
"""

from __future__ import annotations

import csv
import functools
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import FALSE, TRUE, LlamaConfig
from ggbench.engines.llama.flags import UNSET, changed_flags
from ggbench.errors import UnknownName, UsageError
from ggbench.fields import defaults_of, options_of
from ggbench.text import shell_path, shorten

_MOST_CHARACTERS = 20_000
_FLASH_ATTN = "--flash-attn"
_OWN_VALUES = (_FLASH_ATTN, "--threads", "--threads-batch", "--parallel", "--device")
"""Options that ggbench has by the same flag, but that take values of their own: `-fa` none, `-np -1`, `-dev none`."""
_BARE = "write -fa on: without a value it takes the next word for one"
_UNCOUNTED = frozenset({
    "--lora", "--lora-scaled", "--control-vector", "--n-gpu-layers-draft", "--override-tensor-draft", "--cpu-moe-draft",
    "--n-cpu-moe-draft", "--device-draft", "--n-cpu-ffn", "--kv-unified-per-slot", "--no-host", "--no-repack",
    "--no-op-offload", "--override-kv", "--lazy-mode", "--mmproj-device", "--no-mmproj-offload", "--numa",
})  # fmt: skip
"""Options that concern memory or speed, by their last spelling, and that no plan counts."""
_SECRETS = ("--api-key", "--hf-token")
_DRAFTS_BY_MODEL = ("none", "draft-simple", "draft-mtp")


class ServerOption(msgspec.Struct, frozen=True):
    """An option of llama-server."""

    on: tuple[str, ...]
    """Its spellings."""
    off: tuple[str, ...]
    """Those that switch it off."""
    n_values: int
    env: str
    """The variable that sets it too; empty if there is none."""
    gone: str
    """Why llama-server refuses it, or what does its work; empty for one that it has."""

    @property
    def name(self) -> str:
        return self.on[-1]

    @property
    def spellings(self) -> tuple[str, ...]:
        return (*self.on, *self.off)


class Given(msgspec.Struct, frozen=True):
    """An option as it was given."""

    option: ServerOption
    flag: str
    """As typed; the first spelling for a variable."""
    values: tuple[str, ...] = ()
    gone: str = ""
    """Why llama-server refuses it or takes it otherwise; empty if it does not."""
    is_gone: bool = False
    """Whether it is refused however it is written."""

    @property
    def is_off(self) -> bool:
        return self.flag in self.option.off

    @property
    def name(self) -> str:
        """The last spelling of what it switches."""
        return self.option.off[-1] if self.is_off else self.option.name

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""

    @property
    def words(self) -> tuple[str, ...]:
        """It as typed, without a key or a token."""
        return self.flag, *("***" if self.name in _SECRETS else each for each in self.values)


@functools.cache
def server_options() -> Mapping[str, ServerOption]:
    """Return llama-server's options by each of their spellings."""
    text = (files("ggbench.engines.llama") / "server_options.csv").read_text(encoding="utf-8")
    found = dict[str, ServerOption]()
    for row in csv.DictReader(text.splitlines()):
        on, off = tuple(row["on"].split()), tuple(row["off"].split())
        option = ServerOption(on, off, int(row["values"]), row["env"], row["gone"])
        found |= dict.fromkeys(option.spellings, option)
    return found


def find_option(word: str) -> ServerOption | None:
    """Return the option that a word is, with `_` for `-` as llama.cpp allows in long ones; None for any other word."""
    return server_options().get(word.replace("_", "-") if word.startswith("--") else word)


def take_option(words: list[str]) -> Given | None:
    """Take an option with its values off the words; None, and nothing, if they do not begin with one.

    Raises UsageError if a value is missing.
    """
    option = find_option(words[0])
    if option is None:
        return None
    flag = words.pop(0)
    flag = flag.replace("_", "-") if flag.startswith("--") else flag
    if option.name == _FLASH_ATTN and (not words or words[0].lower() not in (*TRUE, *FALSE, "auto", "-1")):
        return Given(option, flag, ("on",), _BARE)
    if len(words) < option.n_values:
        raise UsageError(f"{flag} lacks its value", "llama-server --help shows its options")
    values = tuple(words[: option.n_values])
    del words[: option.n_values]
    if option.name == "--spec-type" and (spelled := _spelled(values[0])) != values[0]:
        return Given(option, flag, (spelled,), f"its value is {spelled}")
    gone = option.gone
    if option.name == "--split-mode" and values == ("row",):
        gone = "llama.cpp has removed it for all but SYCL: use -sm tensor"
    return Given(option, flag, values, gone, bool(gone))


def _spelled(kinds: str) -> str:
    """Return kinds of speculation by their names: `draft-mtp` for `mtp`, as forks and earlier versions have it."""
    drafts = ("simple", "eagle3", "mtp", "dflash", "dspark")
    return ",".join(f"draft-{each}" if each in drafts else each for each in kinds.split(","))


def own_words(given: Given, own: Collection[str]) -> list[str] | None:
    """Return an option as a command writes it that has the options `own`; None if it has no effect there."""
    if given.name in _MEANINGS:
        return _MEANINGS[given.name](given)
    alike = [each for each in (given.option.off if given.is_off else given.option.on) if each in own]
    if alike:
        return [alike[0], *given.values]
    is_default = given.option.n_values == 0 and any(each in own for each in given.option.spellings)
    return [] if is_default else None


def _model(given: Given) -> list[str]:
    return [given.value]


def _load_mode(given: Given) -> list[str]:
    """Return the fields that `--load-mode` sets; `auto` maps the file."""
    modes = given.value.split("+")
    unmapped = [] if {"auto", "mmap"} & {*modes} else ["--no-mmap"]
    return [*unmapped, *(["--mlock"] if "mlock" in modes else [])]


def _drafts(given: Given) -> list[str] | None:
    kinds = given.value.split(",")
    if "draft-mtp" in kinds:
        return ["--mtp"]
    return [] if {*kinds} <= {*_DRAFTS_BY_MODEL} else None


def _cpu_threads(given: Given) -> list[str]:
    """Return the threads; llama.cpp takes a number below 1 for the number of cores."""
    return [] if given.value.startswith("-") or given.value == "0" else [given.option.on[0], given.value]


def _slots(given: Given) -> list[str]:
    return [] if given.value == "-1" else ["-np", given.value]


def _devices(given: Given) -> list[str]:
    return ["-ngl", "0"] if given.value == "none" else ["-dev", given.value]


_MEANINGS: Mapping[str, Callable[[Given], list[str] | None]] = {
    "--model": _model,
    "--hf-repo": _model,
    "--model-url": _model,
    "--split-mode": lambda given: ["-sm", given.value.replace("row", "layer")],
    "--draft-max": lambda given: ["--spec-draft-n-max", given.value],
    "--hf-repo-draft": lambda given: ["-md", given.value],
    "--load-mode": _load_mode,
    "--spec-type": _drafts,
    "--threads": _cpu_threads,
    "--threads-batch": _cpu_threads,
    "--parallel": _slots,
    "--device": _devices,
    "--mmproj-url": lambda given: ["--mmproj", "auto"],
    "--mmap": lambda given: [],
    "--no-mmap": lambda given: ["--no-mmap"],
    "--mlock": lambda given: ["--mlock"],
    "--direct-io": lambda given: ["--no-mmap"],
    "--no-direct-io": lambda given: [],
}
"""Options that ggbench has otherwise, by their last spelling."""


def in_own_words(args: Sequence[str], own: Collection[str]) -> tuple[list[str], list[str]]:
    """Return a command's arguments with llama-server's options as those in `own`, and the options without an effect.

    What the command has itself keeps its own meaning.
    """
    left, words, idle = list(args), list[str](), list[str]()
    while left:
        option = find_option(left[0]) if left[0].startswith("-") else None
        is_own = left[0] in own and (option is None or option.name not in _OWN_VALUES)
        given = None if is_own or left[0] == "--" else take_option(left)
        if left and left[0] == "--":
            return [*words, *left], idle
        if given is None:
            words.append(left.pop(0))
            continue
        found = own_words(given, own)
        words += found or []
        idle += [] if found is not None else [given.flag]
    return words, idle


class CommandLine(msgspec.Struct, frozen=True):
    """A llama-server command, as pasted."""

    program: tuple[str, ...]
    given: tuple[Given, ...]

    def last(self, *names: str) -> Given | None:
        """Return the last of these options, by their last spellings; None without any."""
        return next((each for each in reversed(self.given) if each.option.name in names), None)

    def value(self, name: str) -> str:
        """Return the value of an option; empty if it was not given."""
        found = self.last(name)
        return "" if found is None else found.value

    @property
    def model(self) -> str:
        """The model as MODEL takes it: a path, or `org/name:QUANT`; empty if the command names none."""
        found = self.last("--model", "--hf-repo", "--model-url")
        if found is None:
            return ""
        file = self.value("--hf-file")
        return f"{found.value.partition(':')[0]}:{file}" if file and found.name == "--hf-repo" else found.value

    @property
    def refused(self) -> tuple[Given, ...]:
        """The options that llama-server refuses, or that have no effect any more."""
        return tuple(each for each in self.given if each.gone)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """What concerns memory or speed, and is not counted."""
        return tuple(dict.fromkeys(each.flag for each in self.given if each.name in _UNCOUNTED))

    @property
    def is_placed(self) -> bool:
        """Whether it says which layers or tensors are on a GPU, so that `--fit` moves none."""
        layers = self.value("--n-gpu-layers")
        names = ("--override-tensor", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--tensor-split")
        return layers not in ("", "auto", "-1") or self.last(*names) is not None

    @property
    def fits(self) -> bool:
        """Whether llama-server adapts what is not given to the memory, as by default."""
        return self.value("--fit").lower() not in FALSE and self.value("--split-mode") != "tensor"

    def words(self, own: Collection[str]) -> tuple[list[str], list[str]]:
        """Return its options, but the model, as a command has them with the options `own`, and those without effect."""
        found, idle = list[str](), list[str]()
        for each in self.given:
            words = [] if each.name in (*_MODELS, *_APART) else own_words(each, own)
            found += words or []
            if words is None and each.name not in _UNCOUNTED and not each.gone:
                idle.append(each.flag)
        return found, list(dict.fromkeys(idle))

    def changed(self, before: LlamaConfig, after: LlamaConfig) -> str:
        """Return the command with the options that differ between two setups, and without those that are refused."""
        fields = {
            each for each in LlamaConfig.__struct_fields__ if getattr(before, each) != getattr(after, each)
        }
        fields |= _OF_EXPERTS if fields & _OF_EXPERTS else set()
        kept = list[str]()
        for each in self.given:
            field = next((_FIELDS[name] for name in each.option.spellings if name in _FIELDS), "")
            if each.name in _RENAMED:
                kept += [_RENAMED[each.name], *each.values]
            elif field not in fields and not each.is_gone and each.name != "--load-mode":
                kept += each.words
        base = replace(LlamaConfig(), n_gpu_layers=UNSET, n_seq_max=0)
        return " ".join(map(_quoted, [*self.program, *kept, *changed_flags(after, base, {*fields, "mmap"})]))


def _quoted(word: str) -> str:
    """Quote a word for a POSIX shell, but for `~` and the variables in it, which were not the user's to spell out."""
    if "$" in word:
        escaped = re.sub(r'(["`\\])', r"\\\1", word)
        return f'"{escaped}"'
    return shell_path(word)


_OF_EXPERTS = {"cpu_moe", "n_cpu_moe", "override_tensor"}
_RENAMED = {"--draft-max": "--spec-draft-n-max", "--draft-min": "--spec-draft-n-min"}
_MODELS = ("--model", "--hf-repo", "--hf-file", "--model-url")
_APART = ("--fit", "--fit-target", "--fit-ctx", "--cache-ram", "--mmproj-auto", "--no-mmproj-auto")
"""Options that a check reads itself."""
_FIELDS = {
    flag: field
    for field, option in options_of(LlamaConfig).items()
    for flag in option.flags_of(field, defaults_of(LlamaConfig).get(field))
}
"""Fields by the flags of their options."""

_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_REMARK = re.compile(r"(?m)^[ \t]*#.*$")
_PROMPT = re.compile(r"^\s*(?:\$|>|%|PS [^>\n]*>)\s+")
_DASHES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u200b": None})
_WINDOWS = re.compile(r"\.exe\b|(?:^|[\s\"'])(?:[A-Za-z]:|\.)\\", re.IGNORECASE)
_VARIABLE = re.compile(r"(?P<name>\w+)=(?P<value>.*)", re.DOTALL)
_SERVER = re.compile(r"(?:.*[/\\])?(?:llama-server|server|llama)(?:\.exe)?", re.IGNORECASE)
_CONTAINERS = ("docker", "podman", "nerdctl")
_DOCKER_FLAGS = frozenset({
    "--rm", "--init", "--privileged", "--detach", "--interactive", "--tty", "--publish-all", "-P", "--read-only",
    "--no-healthcheck", "--quiet", "-q",
})  # fmt: skip
"""Options of `docker run` without a value."""


def parse_command(text: str) -> CommandLine:
    """Parse a pasted command that starts llama-server, with the variables before it, in a shell or a container.

    Raises UsageError for anything else, UnknownName for an option that llama-server does not have.
    """
    words = _server_words(text)
    variables = dict[str, str]()
    if _program(words[0]) in _CONTAINERS:
        words, variables = _in_container(words)
    else:
        for index, word in enumerate(words):
            if _SERVER.fullmatch(word):
                variables = dict(_variables(words[:index]))
                words = words[index:]
                break
    if not words or not _SERVER.fullmatch(words[0]):
        raise UsageError(
            f"{shorten(words[0] if words else text, 60)!r} is no llama-server command",
            "paste the whole line, as in: llama-server -m model-q4_k_m.gguf -c 16384",
        )
    n_program = 2 if words[1:2] in (["serve"], ["server"]) else 1
    found = [*_of_variables(variables), *_of_words(words[n_program:])]
    return CommandLine(tuple(words[:n_program]), tuple(found))


def _program(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].lower()


def _server_words(text: str) -> list[str]:
    """Return the words of the command in a text that starts a server: of several, the first. Raises UsageError."""
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(
            f"{len(text):,} characters are no command line", "paste the line that starts llama-server"
        )
    text = _CONTINUED.sub(" ", text.translate(_DASHES))
    text = _REMARK.sub("", _PROMPT.sub("", text)).strip()
    if not text:
        raise UsageError(
            "the command line is empty", "paste one: ggbench check 'llama-server -m model.gguf -c 16384'"
        )
    if any(not (each.isprintable() or each in "\t\r\n") for each in text):
        raise UsageError("the command line has control characters", "paste it as text")
    if _WINDOWS.search(text):
        text = text.replace("\\", "\\\\")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        raise UsageError(f"unbalanced quotes in {shorten(text, 60)!r}", "paste the whole line") from None
    commands = list(_commands(words))
    return next(
        (each for each in commands if any(map(_SERVER.fullmatch, each))), commands[0] if commands else [text]
    )


def _commands(words: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without redirections."""
    command, is_target = list[str](), False
    for word in words:
        if word and not word.strip(";&|<>"):
            is_target = "<" in word or ">" in word
            if is_target:
                command = command[:-1] if command[-1:] in (["1"], ["2"]) else command
            elif command:
                yield command
                command = []
        elif is_target:
            is_target = False
        else:
            command.append(word)
    if command:
        yield command


def _variables(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if match := _VARIABLE.fullmatch(word):
            yield match["name"], match["value"]


def _in_container(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a server command that `docker run` starts, and the variables that it sets.

    The image comes after the options, of which all but a few have a value; its entry point is llama-server.
    """
    left, variables = list(words[1:]), dict[str, str]()
    while left and (left[0].startswith("-") or left[0] in ("run", "container")):
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        is_switch = not word.startswith("-") or flag in _DOCKER_FLAGS or not word.strip("-dit")
        if not equals and not is_switch and left:
            value = left.pop(0)
        if flag in ("-e", "--env"):
            variables |= _variables([value])
    image, own = left[:1], left[1:]
    if not image or "llama" not in image[0].lower():
        return image, variables
    if own and (_SERVER.fullmatch(own[0]) or own[0] in ("--server", "-s")):
        own = own[1:]
    return ["llama-server", *own], variables


def _of_variables(variables: Mapping[str, str]) -> Iterator[Given]:
    """Yield the options that variables set, as llama.cpp reads them."""
    for option in {each.name: each for each in server_options().values() if each.env}.values():
        negated = option.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
        if option.off and negated in variables:
            yield Given(option, option.off[0])
        elif option.env in variables:
            value = variables[option.env]
            if option.n_values:
                yield Given(option, option.on[0], (value,), option.gone, bool(option.gone))
            elif value.lower() in TRUE:
                yield Given(option, option.on[0])
            elif option.off:
                yield Given(option, option.off[0])


def _of_words(words: Sequence[str]) -> Iterator[Given]:
    """Yield the options of a server's words. Raises UsageError."""
    left = list(map(_with_plain_dash, words))
    while left:
        flag, equals, value = left[0].partition("=")
        joins = bool(equals) and flag.startswith("--") and find_option(flag) is not None
        if joins:
            left[:1] = [flag, value]
        given = take_option(left)
        if given is None:
            word = shorten(left[0], 60)
            if not word.startswith("-"):
                raise UsageError(f"{word!r} belongs to no option", "llama-server takes a file as -m FILE")
            raise UnknownName("option of llama-server", word, server_options())
        yield replace(given, gone=f"write a blank: {flag} {value}") if joins else given


def _with_plain_dash(word: str) -> str:
    """Return a word with the hyphens for which a forum's editor has put a dash."""
    if not word.startswith(("–", "—", "−")):
        return word
    bare = word.lstrip("–—−-")
    return f"--{bare}" if find_option(f"--{bare.partition('=')[0]}") else f"-{bare}"
