"""Write the commands that run a quant as planned, with llama-server, llama-cli and Ollama.

Sources: llama.cpp's tools/server/server.cpp, version 0.3.36 of llama-cpp-python; Ollama's Modelfile reference and
parser/parser.go. Only options that differ from a program's default are written.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.engines.llama.flags import ALL_LAYERS, draft_flags, load_flags, server_flags
from ggbench.models.targets import FileToRun
from ggbench.sizing.projectors import Projector
from ggbench.units import format_bytes, format_count

_DEFAULT = LlamaConfig()
_OLLAMA_KV_TYPES = ("f16", "q8_0", "q4_0")
_OLLAMA_FLASH_ATTN = {"on": "1", "off": "0"}
_PLACEHOLDER = Path("MODEL.gguf")
_CACHE_NOTE = (
    f"--cache-ram [MiB] keeps llama-server's prompt cache, by default up to {format_bytes(CACHE_RAM_BYTES)}, within the"
    " main memory planned for."
)


def run_commands(
    file: FileToRun,
    setup: LlamaConfig,
    *,
    on_gpu: bool,
    n_ctx_train: int | None = None,
    projector: Projector | None = None,
    draft: FileToRun | None = None,
    larger: LlamaConfig | None = None,
    cache_ram_mib: int | None = None,
) -> RunCommands:
    """Return the commands that load a file as `setup` does.

    If `on_gpu` (planned for a GPU), they ask for all layers explicitly. The llama-cli command gets the context of one
    slot; Ollama drafts with nothing. `larger` is the setup with a larger physical batch.
    `cache_ram_mib` limits llama-server's prompt cache; None leaves its default.
    """
    model = _model_words(file, projector)
    drafting = [] if draft is None else _draft_words(draft)
    alone = setup if setup.n_ctx is None else replace(setup, n_ctx=setup.n_ctx // setup.n_seq_max, n_seq_max=1)
    obstacles = _ollama_obstacles(file, setup, projector, drafts=bool(drafting) or setup.mtp)
    cache, notes = list[str](), _notes(file, setup, n_ctx_train, obstacles, on_gpu=on_gpu)
    if cache_ram_mib is not None:
        cache = ["--cache-ram", str(cache_ram_mib)]
        notes.append(_CACHE_NOTE)

    def server(setup: LlamaConfig) -> str:
        return _line(["llama-server", *model, *server_flags(setup, on_gpu=on_gpu, draft=drafting), *cache])

    commands = RunCommands(
        llama_server=server(setup),
        llama_cli=_line(["llama-cli", *model, *load_flags(alone, on_gpu=on_gpu), *draft_flags(alone, drafting)]),
        pull=_line(["ggbench", "pull", file.model, file.quant]) if file.repo and not file.is_here else "",
        notes=tuple(notes),
        faster_prompts="" if larger is None else server(larger),
    )
    if obstacles:
        return commands
    name = _ollama_name(file)
    ollama = (*_ollama_server(setup), f"ollama create {name} -f Modelfile", f"ollama run {name}")
    return replace(commands, modelfile=_modelfile(file, alone, on_gpu=on_gpu), ollama=ollama)


def commands_lines(commands: RunCommands) -> list[str]:
    """Return the lines to run: the download, llama-server, llama-cli, then those for Ollama."""
    servers = [commands.llama_server]
    if commands.faster_prompts:
        servers += ['# or, to read prompts faster (see "prompts" above):', commands.faster_prompts]
    lines = [line for line in (commands.pull, *servers, commands.llama_cli) if line]
    return [*lines, *(["", *modelfile_lines(commands)] if commands.modelfile else [])]


def modelfile_lines(commands: RunCommands) -> list[str]:
    """Return the lines that write the Modelfile and use it; none if Ollama has no equivalent."""
    if not commands.modelfile:
        return []
    return ["cat > Modelfile <<'EOF'", *commands.modelfile.splitlines(), "EOF", *commands.ollama]


def _model_words(file: FileToRun, projector: Projector | None) -> list[str]:
    words = [] if projector is None else ["--mmproj", f"mmproj-{_PLACEHOLDER}"]
    if projector is not None and projector.path is not None:
        words = ["--mmproj", str(projector.path.absolute())]
    elif projector is not None and projector.url:
        words = ["--mmproj-url", projector.url]
    if file.paths:
        return ["-m", str(file.paths[0].absolute()), *words]
    if file.repo:
        if projector is not None and projector.path is None and not projector.url:
            words = []  # -hf downloads and loads the repo's own projector
        # without --no-mmproj, it would load one that the plan did not count
        return ["-hf", f"{file.repo}:{file.quant}", *(words if projector is not None else ["--no-mmproj"])]
    return ["-m", str(_PLACEHOLDER), *words]


def _draft_words(draft: FileToRun) -> list[str]:
    if draft.paths and draft.is_here:
        return ["-md", str(draft.paths[0].absolute())]
    return ["-hfd", f"{draft.repo}:{draft.quant}"] if draft.repo else ["-md", f"draft-{_PLACEHOLDER}"]


def _ollama_obstacles(file: FileToRun, setup: LlamaConfig, projector: Projector | None, *, drafts: bool) -> list[str]:
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


def _modelfile(file: FileToRun, setup: LlamaConfig, *, on_gpu: bool) -> str:
    sources = [str(path.absolute()) for path in file.paths]
    if not sources:
        sources = [f"hf.co/{file.repo}:{file.quant}" if file.repo else f"./{_PLACEHOLDER}"]
    n_gpu = ALL_LAYERS if on_gpu else None
    if setup.n_gpu_layers >= 0:
        n_gpu = setup.n_gpu_layers
    parameters = {
        "num_ctx": setup.n_ctx,
        "num_gpu": n_gpu,
        "main_gpu": setup.main_gpu,
        "num_batch": None if setup.n_ubatch == _DEFAULT.n_ubatch else setup.n_ubatch,
        "num_thread": setup.threads,
        "use_mmap": None if setup.mmap else "false",
    }
    lines = [f"FROM {source}" for source in sources]
    lines += [f"PARAMETER {name} {value}" for name, value in parameters.items() if value is not None]
    return "\n".join(lines) + "\n"


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
    return [f"# restart Ollama's server (this affects all its models): {' '.join(environment)} ollama serve"]


def _ollama_name(file: FileToRun) -> str:
    """Return `name-quant` with the characters that Ollama allows, in lower case."""
    name = re.split(r"[/:]", file.model.rstrip("/"))[-1].removesuffix(".gguf")
    quant = "" if name.lower().endswith(file.quant.lower()) else f"-{file.quant}"
    return re.sub(r"[^a-z0-9._-]+", "-", f"{name}{quant}".lower()).strip("-._") or "model"


def _notes(
    file: FileToRun, setup: LlamaConfig, n_ctx_train: int | None, obstacles: list[str], *, on_gpu: bool
) -> list[str]:
    notes = []
    if not file.paths and not file.repo:
        unknown = f"ggbench's catalog names no repo for {file.model}"
        if file.lacking_repo:
            unknown = f"{file.quant} is not known to be published in {file.lacking_repo}"
        notes.append(f"{unknown}: replace {_PLACEHOLDER} with the path of yours.")
    if file.repo and not file.is_known:
        notes.append(f"Not checked: whether {file.repo} has {file.quant}; ggbench pull asks the Hub.")
    n_ctx_slot = None if setup.n_ctx is None else setup.n_ctx // setup.n_seq_max
    if n_ctx_slot and n_ctx_train and n_ctx_slot > n_ctx_train:
        notes.append(
            f"llama-server limits a request to the training context of {format_count(n_ctx_train)} tokens; "
            "the rest of the memory stays unused."
        )
    if not on_gpu:
        notes.append(
            f"llama-server also keeps up to {format_bytes(CACHE_RAM_BYTES)} of earlier prompts in main memory; "
            "-cram 0 turns that off."
        )
    if obstacles:
        notes.append(f"Ollama has no setting for {', '.join(obstacles)}.")
    return notes


def _line(words: list[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word for a POSIX shell, or as bash's and zsh's `$'...'` if it is not printable."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    parts = (
        each if each.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(each)) for each in escaped
    )
    return f"$'{''.join(parts)}'"


class RunCommands(msgspec.Struct, frozen=True):
    """The commands for each program, as lines for a POSIX shell."""

    llama_server: str
    llama_cli: str
    pull: str = ""
    """Downloads the file first; empty if it is on this disk or no download is known."""
    modelfile: str = ""
    """Content for `ollama create`; empty if Ollama has no equivalent."""
    ollama: tuple[str, ...] = ()
    """Commands that expect `modelfile` in the file Modelfile; the first may be a comment on the server's environment.
    """
    notes: tuple[str, ...] = ()
    """Settings that the commands cannot express, one sentence each."""
    faster_prompts: str = ""
    """llama-server with a larger physical batch, for experts in main memory; empty if none fits or none is faster."""
