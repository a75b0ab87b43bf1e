"""Write what runs a quant as planned with llama-server, Ollama and llama-swap.

Sources: llama.cpp's tools/server/server.cpp, version 0.3.36 of llama-cpp-python; Ollama's Modelfile reference and
parser/parser.go. Only options that differ from a program's default are written.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.http.program import printed_program
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import ALL_LAYERS, server_flags
from ggbench.models.targets import FileToRun
from ggbench.show.words import say
from ggbench.sizing.projectors import Projector

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

    If `on_gpu` (planned for a GPU), they ask for all layers explicitly. Ollama gets the context of one slot, and drafts
    with nothing. `cache_ram_mib` limits llama-server's prompt cache; None leaves its default.
    """
    if not all(str(path).isprintable() for path in file.paths):
        file = replace(file, paths=(), is_here=False, repo="")  # no shell could be given its name as text
    drafting = [] if draft is None else _file_words(draft, "-md", "-hfd", f"draft-{_PLACEHOLDER}")
    obstacles = tuple(_ollama_obstacles(file, setup, projector, drafts=bool(drafting) or setup.mtp))
    words = [*_file_words(file, "-m", "-hf", str(_PLACEHOLDER)), *_projector_words(file, projector)]
    words += server_flags(setup, on_gpu=on_gpu, draft=drafting)
    words += [] if cache_ram_mib is None else ["--cache-ram", str(cache_ram_mib)]
    name = _file_name(file)
    return RunCommands(
        llama_server=shlex.join([*printed_program().split(), *words]),
        pull=shlex.join(["ggbench", "pull", file.model, file.quant]) if file.repo and not file.is_here else "",
        modelfile="" if obstacles else _modelfile(file, setup, name, on_gpu=on_gpu),
        preset=_preset(name, words),
        llama_swap=_llama_swap(name, words),
        notes=_notes(file),
        not_in_ollama=obstacles,
    )


def _preset(name: str, words: Sequence[str]) -> str:
    """Return a section of an INI file for llama-server's `--models-preset`, or nothing if a value cannot be in one.

    Keys are options without dashes; `;` and `#` begin a comment anywhere. Source: llama.cpp's common/preset.cpp.
    """
    if any(";" in word or "#" in word for word in words):
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
    if any("${" in word for word in words):
        return ""
    command = json.dumps(f"{printed_program()} --port ${{PORT}} {shlex.join(words)}", ensure_ascii=False)
    return f"models:\n  {json.dumps(name)}:\n    cmd: {command}\n"


def _file_words(file: FileToRun, option: str, repo_option: str, unknown: str) -> list[str]:
    """Return the option that names a file, or the repo that it is downloaded from."""
    if not _is_remote(file):
        return [option, str(file.paths[0].absolute()) if file.paths else unknown]
    if file.quant.lower().endswith(".gguf"):
        return [repo_option, file.repo, "-hff", file.quant]
    return [repo_option, f"{file.repo}:{file.quant}"]


def _projector_words(file: FileToRun, projector: Projector | None) -> list[str]:
    """Return the option of a projector; `-hf` downloads and loads the repo's own."""
    is_remote = _is_remote(file)
    if projector is None:
        return ["--no-mmproj"] if is_remote else []
    if projector.path is not None:
        return ["--mmproj", str(projector.path.absolute())]
    if projector.url:
        return ["--mmproj-url", projector.url]
    return [] if is_remote else ["--mmproj", f"mmproj-{_PLACEHOLDER}"]


def _is_remote(file: FileToRun) -> bool:
    """Return whether the program that runs it has to download it."""
    return bool(file.repo) and not (file.is_here and file.paths)


def _ollama_obstacles(
    file: FileToRun, setup: LlamaConfig, projector: Projector | None, *, drafts: bool
) -> Iterator[str]:
    """Yield the settings that have no equivalent in Ollama."""
    if drafts:
        yield "a draft"
    if setup.type_k != setup.type_v or setup.type_k not in _OLLAMA_KV_TYPES:
        yield f"a KV cache of K {setup.type_k} and V {setup.type_v}"
    if setup.tensor_overrides:
        yield "experts or single tensors in main memory"
    if setup.devices:
        yield "a choice among GPUs"
    if setup.rpc_servers:
        yield "devices of other machines"
    if projector is not None:
        yield "a separate projector file"


def _sources(file: FileToRun) -> list[str]:
    """Return the files of a Modelfile, or the repo that Ollama downloads."""
    if _is_remote(file):
        return [f"hf.co/{file.repo}:{file.quant}"]
    return [str(path.absolute()) for path in file.paths] or [f"./{_PLACEHOLDER}"]


def _modelfile(file: FileToRun, setup: LlamaConfig, name: str, *, on_gpu: bool) -> str:
    """Return a Modelfile, with how to start Ollama's server, if its defaults do not do, and how to run the model."""
    environment = _ollama_environment(setup)
    lines = [f"# ollama create {name} -f Modelfile; ollama run {name}"]
    if environment:
        lines.insert(0, f"# restart Ollama's server, for all its models: {' '.join(environment)} ollama serve")
    lines += [f"FROM {each}" for each in _sources(file)]
    parameters = {
        "num_ctx": setup.n_ctx and setup.n_ctx // setup.n_seq_max,
        "num_gpu": ALL_LAYERS if on_gpu else None,
        "main_gpu": setup.main_gpu,
        "num_batch": None if setup.n_ubatch == _DEFAULT.n_ubatch else setup.n_ubatch,
        "num_thread": setup.threads,
        "use_mmap": None if setup.mmap else "false",
    }
    if setup.n_gpu_layers >= 0:
        parameters["num_gpu"] = setup.n_gpu_layers
    lines += [f"PARAMETER {each} {value}" for each, value in parameters.items() if value is not None]
    return "\n".join([*lines, ""])


def _ollama_environment(setup: LlamaConfig) -> list[str]:
    """Return the variables of Ollama's server, for all its models; llama.cpp enables flash attention for a quantized V.

    Source: Ollama's FAQ.
    """
    is_quantized, found = setup.type_v != "f16" and setup.flash_attn == "auto", []
    flash_attn = _OLLAMA_FLASH_ATTN.get("on" if is_quantized else setup.flash_attn)
    if flash_attn is not None:
        found.append(f"OLLAMA_FLASH_ATTENTION={flash_attn}")
    if setup.type_k != "f16":
        found.append(f"OLLAMA_KV_CACHE_TYPE={setup.type_k}")
    if setup.n_seq_max > 1:
        found.append(f"OLLAMA_NUM_PARALLEL={setup.n_seq_max}")
    return found


def _file_name(file: FileToRun) -> str:
    """Return `name-quant` with the characters that Ollama and section names allow, in lower case."""
    name = re.split(r"[/:]", file.model.rstrip("/"))[-1].removesuffix(".gguf")
    quant = "" if name.lower().endswith(file.quant.lower()) else f"-{file.quant}"
    return re.sub(r"[^a-z0-9._-]+", "-", f"{name}{quant}".lower()).strip("-._") or "model"


def _notes(file: FileToRun) -> tuple[str, ...]:
    """Return that the command has a placeholder for the file."""
    if file.paths or file.repo:
        return ()
    key = "pick.lacking_quant" if file.lacking_repo else "pick.no_repo"
    return (say(key, model=file.model, quant=file.quant, repo=file.lacking_repo, path=str(_PLACEHOLDER)),)


class RunCommands(msgspec.Struct, frozen=True):
    """The commands for each program, as lines for a POSIX shell."""

    llama_server: str
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
