"""Write what runs a quant as planned with llama-server, llama-cli, Ollama and llama-swap.

Sources: llama.cpp's tools/server/server.cpp, version 0.3.36 of llama-cpp-python; Ollama's Modelfile reference and
parser/parser.go. Only options that differ from a program's default are written.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.engines.llama.flags import ALL_LAYERS, draft_flags, load_flags, server_flags
from ggbench.models.targets import FileToRun
from ggbench.show.figure import Value
from ggbench.show.words import say
from ggbench.sizing.projectors import Projector
from ggbench.units import format_bytes

_DEFAULT = LlamaConfig()
_OLLAMA_KV_TYPES = ("f16", "q8_0", "q4_0")
_OLLAMA_FLASH_ATTN = {"on": "1", "off": "0"}
_PLACEHOLDER = Path("MODEL.gguf")


def run_commands(
    file: FileToRun,
    setup: LlamaConfig,
    *,
    on_gpu: bool,
    projector: Projector | None = None,
    draft: FileToRun | None = None,
    cache_ram_mib: int | None = None,
) -> RunCommands:
    """Return the commands that load a file as `setup` does.

    If `on_gpu` (planned for a GPU), they ask for all layers explicitly. The llama-cli command gets the context of one
    slot; Ollama drafts with nothing. `cache_ram_mib` limits llama-server's prompt cache; None leaves its default.
    """
    model = _model_words(file, projector)
    drafting = [] if draft is None else _draft_words(draft)
    alone = setup if setup.n_ctx is None else replace(setup, n_ctx=setup.n_ctx // setup.n_seq_max, n_seq_max=1)
    cache = [] if cache_ram_mib is None else ["--cache-ram", str(cache_ram_mib)]
    obstacles = _ollama_obstacles(file, setup, projector, drafts=bool(drafting) or setup.mtp)
    words = [*model, *server_flags(setup, on_gpu=on_gpu, draft=drafting), *cache]
    name = _file_name(file)
    commands = RunCommands(
        llama_server=_line(["llama-server", *words]),
        llama_cli=_line(
            ["llama-cli", *model, *load_flags(alone, on_gpu=on_gpu), *draft_flags(alone, drafting)]
        ),
        pull=_line(["ggbench", "pull", file.model, file.quant]) if file.repo and not file.is_here else "",
        preset=_preset(name, words),
        llama_swap=_llama_swap(name, words),
        notes=tuple(_notes(file, keeps_prompts=not on_gpu and cache_ram_mib is None)),
        not_in_ollama=tuple(obstacles),
    )
    if obstacles:
        return commands
    lines = [*_ollama_server(setup), f"# ollama create {name} -f Modelfile; ollama run {name}"]
    return replace(commands, modelfile="\n".join([*lines, *_modelfile(file, alone, on_gpu=on_gpu), ""]))


def _preset(name: str, words: Sequence[str]) -> str:
    """Return a section of an INI file for llama-server's `--models-preset`, or nothing if a value cannot be in one.

    Keys are options without dashes; `;` and `#` begin a comment anywhere. Source: llama.cpp's common/preset.cpp.
    """
    if any(not word.isprintable() or ";" in word or "#" in word for word in words):
        return ""
    lines = [f"[{name}]"]
    for word, value in itertools.pairwise([*words, "-"]):
        if word.startswith("-"):
            lines.append(f"{word.lstrip('-')} = {'true' if value.startswith('-') else value}")
    return "\n".join(lines) + "\n"


def _llama_swap(name: str, words: Sequence[str]) -> str:
    """Return a configuration of llama-swap with this model, or nothing if a word cannot be in one.

    Source: its config.example.yaml; the command is split as a POSIX shell does, and `${...}` is a macro.
    """
    if any(not word.isprintable() or "${" in word for word in words):
        return ""
    command = json.dumps(f"llama-server --port ${{PORT}} {_line([*words])}", ensure_ascii=False)
    return f"models:\n  {json.dumps(name)}:\n    cmd: {command}\n"


def _model_words(file: FileToRun, projector: Projector | None) -> list[str]:
    if not _is_remote(file):
        path = file.paths[0].absolute() if file.paths else _PLACEHOLDER
        return ["-m", str(path), *_projector_words(projector, f"mmproj-{_PLACEHOLDER}")]
    named = ["-hf", f"{file.repo}:{file.quant}"]
    if file.quant.lower().endswith(".gguf"):
        named = ["-hf", file.repo, "-hff", file.quant]
    if projector is None:
        return [*named, "--no-mmproj"]  # it would load one that the plan did not count
    return [*named, *_projector_words(projector, "")]  # -hf downloads and loads the repo's own


def _projector_words(projector: Projector | None, unknown: str) -> list[str]:
    """Return the option of a projector; of one without a path or an address, with the file name `unknown`, if any."""
    if projector is None:
        return []
    if projector.path is not None:
        return ["--mmproj", str(projector.path.absolute())]
    if projector.url:
        return ["--mmproj-url", projector.url]
    return ["--mmproj", unknown] if unknown else []


def _is_remote(file: FileToRun) -> bool:
    """Return whether the program that runs it has to download it."""
    return bool(file.repo) and not (file.is_here and file.paths)


def _draft_words(draft: FileToRun) -> list[str]:
    if draft.paths and draft.is_here:
        return ["-md", str(draft.paths[0].absolute())]
    return ["-hfd", f"{draft.repo}:{draft.quant}"] if draft.repo else ["-md", f"draft-{_PLACEHOLDER}"]


def _ollama_obstacles(
    file: FileToRun, setup: LlamaConfig, projector: Projector | None, *, drafts: bool
) -> list[str]:
    """Return the settings that have no equivalent in Ollama."""
    obstacles = ["a draft"] if drafts else []
    if setup.type_k != setup.type_v or setup.type_k not in _OLLAMA_KV_TYPES:
        obstacles.append(f"a KV cache of K {setup.type_k} and V {setup.type_v}")
    if setup.cpu_moe or setup.n_cpu_moe or setup.override_tensor:
        obstacles.append("experts or single tensors in main memory")
    if setup.rpc_servers:
        obstacles.append("devices of other machines")
    if projector is not None:
        obstacles.append("a separate projector file")
    if any(not str(path).isprintable() for path in file.paths):
        obstacles.append("a file name with control characters")
    return obstacles


def _modelfile(file: FileToRun, setup: LlamaConfig, *, on_gpu: bool) -> list[str]:
    sources = [str(path.absolute()) for path in file.paths] or [f"./{_PLACEHOLDER}"]
    if _is_remote(file):
        sources = [f"hf.co/{file.repo}:{file.quant}"]
    n_gpu_layers = ALL_LAYERS if on_gpu else None
    parameters = {
        "num_ctx": setup.n_ctx,
        "num_gpu": n_gpu_layers if setup.n_gpu_layers < 0 else setup.n_gpu_layers,
        "main_gpu": setup.main_gpu,
        "num_batch": None if setup.n_ubatch == _DEFAULT.n_ubatch else setup.n_ubatch,
        "num_thread": setup.threads,
        "use_mmap": None if setup.mmap else "false",
    }
    given = [f"PARAMETER {name} {value}" for name, value in parameters.items() if value is not None]
    return [*(f"FROM {source}" for source in sources), *given]


def _ollama_server(setup: LlamaConfig) -> list[str]:
    """Return how to start Ollama's server, as a comment since it may already be running; nothing if its defaults do.

    Source: Ollama's FAQ. The variables apply to all models of the server.
    """
    flash_attn = setup.flash_attn
    if setup.type_v != "f16" and flash_attn == "auto":
        flash_attn = "on"  # llama.cpp enables it for a quantized V
    environment = []
    if flash_attn in _OLLAMA_FLASH_ATTN:
        environment.append(f"OLLAMA_FLASH_ATTENTION={_OLLAMA_FLASH_ATTN[flash_attn]}")
    if setup.type_k != "f16":
        environment.append(f"OLLAMA_KV_CACHE_TYPE={setup.type_k}")
    if setup.n_seq_max > 1:
        environment.append(f"OLLAMA_NUM_PARALLEL={setup.n_seq_max}")
    if not environment:
        return []
    return [f"# restart Ollama's server, for all its models: {' '.join(environment)} ollama serve"]


def _file_name(file: FileToRun) -> str:
    """Return `name-quant` with the characters that Ollama and section names allow, in lower case."""
    name = re.split(r"[/:]", file.model.rstrip("/"))[-1].removesuffix(".gguf")
    quant = "" if name.lower().endswith(file.quant.lower()) else f"-{file.quant}"
    return re.sub(r"[^a-z0-9._-]+", "-", f"{name}{quant}".lower()).strip("-._") or "model"


def _notes(file: FileToRun, *, keeps_prompts: bool) -> Iterator[str]:
    values: dict[str, Value] = {
        "model": file.model,
        "quant": file.quant,
        "repo": file.repo or file.lacking_repo,
        "path": str(_PLACEHOLDER),
    }
    if not file.paths and not file.repo:
        yield say("pick.lacking_quant" if file.lacking_repo else "pick.no_repo", **values)
    if file.repo and not file.is_known:
        yield say("pick.not_checked", **values)
    if keeps_prompts:
        yield say("run.prompt_cache", cache=format_bytes(CACHE_RAM_BYTES))


def _line(words: list[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word for a POSIX shell, or as bash's and zsh's `$'...'` if it is not printable."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    parts = (
        each if each.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(each))
        for each in escaped
    )
    return f"$'{''.join(parts)}'"


class RunCommands(msgspec.Struct, frozen=True):
    """The commands for each program, as lines for a POSIX shell."""

    llama_server: str
    llama_cli: str
    pull: str = ""
    """Downloads the file first; empty if it is on this disk or no download is known."""
    modelfile: str = ""
    """Content for `ollama create`, with that command as a comment; empty if Ollama has no equivalent."""
    preset: str = ""
    """A section of the file for llama-server's `--models-preset`; empty if that cannot hold the file's name."""
    llama_swap: str = ""
    """A configuration of llama-swap, in YAML; empty if that cannot hold the file's name."""
    notes: tuple[str, ...] = ()
    """What to know before they are run, one sentence each."""
    not_in_ollama: tuple[str, ...] = ()
    """Settings for which Ollama has none; there is then no Modelfile."""
