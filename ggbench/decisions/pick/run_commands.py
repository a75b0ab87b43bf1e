"""Write what runs a quant as planned: a line for a shell, or what another program starts llama-server by.

Each form is rendered from one record. Only options that differ from a program's default are written. Sources:
llama.cpp's tools/server/server.cpp, common/preset.cpp and docs/docker.md, version 0.3.36 of llama-cpp-python; Ollama's
Modelfile reference and parser/parser.go; llama-swap's config-schema.json.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ggbench.engines.http.program import printed_program
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import ALL_LAYERS, server_flags
from ggbench.errors import UsageError
from ggbench.models.targets import FileToRun
from ggbench.record import Record
from ggbench.show.words import say
from ggbench.sizing.projectors import Projector
from ggbench.text import in_words

_DEFAULT = LlamaConfig()
_OLLAMA_KV_TYPES = ("f16", "q8_0", "q4_0")
_OLLAMA_FLASH_ATTN = {"on": "1", "off": "0"}
_PLACEHOLDER = "MODEL.gguf"
_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
_IMAGES: Mapping[str, tuple[str, ...]] = {
    "CUDA": (f"{_IMAGE}-cuda", "--gpus", "all"),
    "ROCm": (f"{_IMAGE}-rocm", "--device", "/dev/kfd", "--device", "/dev/dri"),
    "SYCL": (f"{_IMAGE}-intel", "--device", "/dev/dri"),
    "Vulkan": (f"{_IMAGE}-vulkan", "--device", "/dev/dri"),
}
"""The image of each backend, with the options of `docker run` that give it the GPUs."""
_RPC = "RPC"
_LOOPBACK = ("127.", "localhost:", "[::1]:")


class RunCommands(Record):
    """The commands that run it, as lines for a POSIX shell."""

    llama_server: str
    pull: str = ""
    """Downloads the file first; empty if it is on this disk or no download is known."""
    notes: tuple[str, ...] = ()
    """What to know before they are run, one sentence each."""


class RunSettings(Record):
    """What runs a file as planned."""

    file: FileToRun
    setup: LlamaConfig
    backends: tuple[str, ...] = ()
    """ggml's names of the backends of the GPUs, for which all layers are asked for explicitly; empty for the CPU."""
    projector: Projector | None = None
    draft: FileToRun | None = None
    cache_ram_mib: int | None = None
    """Limit of llama-server's prompt cache; None leaves its default."""

    @property
    def name(self) -> str:
        """Return `name-quant` with the characters that Ollama and section names allow, in lower case."""
        name = re.split(r"[/:]", self.file.model.rstrip("/"))[-1].removesuffix(".gguf")
        quant = "" if name.lower().endswith(self.file.quant.lower()) else f"-{self.file.quant}"
        return re.sub(r"[^a-z0-9._-]+", "-", f"{name}{quant}".lower()).strip("-._") or "model"

    @property
    def placeholder(self) -> str:
        """Return what stands for a file that is not known, from whose name `check` knows the model and the quant."""
        return f"{self.name}.gguf"

    @property
    def words(self) -> list[str]:
        """Return the options of llama-server."""
        drafting = [] if self.draft is None else _file_words(self.draft, "-md", "-hfd", f"draft-{_PLACEHOLDER}")
        words = [
            *_file_words(self.file, "-m", "-hf", self.placeholder),
            *_projector_words(self.file, self.projector),
        ]
        words += server_flags(self.setup, on_gpu=bool(self.backends), draft=drafting)
        return words + ([] if self.cache_ram_mib is None else ["--cache-ram", str(self.cache_ram_mib)])

    @property
    def notes(self) -> tuple[str, ...]:
        """Return that a placeholder is to be replaced, if there is one for the file."""
        file = self.file
        if _is_remote(file) or _text_of(file.paths[:1], ""):
            return ()
        key = "pick.lacking_quant" if file.lacking_repo else "pick.no_repo"
        return (say(key, model=file.model, quant=file.quant, repo=file.lacking_repo, path=self.placeholder),)

    @property
    def commands(self) -> RunCommands:
        file = self.file
        pull = shlex.join(["ggbench", "pull", file.model, file.quant]) if file.repo and not file.is_here else ""
        return RunCommands(shell_line(self), pull, self.notes)


def render(run: RunSettings, form: str) -> str:
    """Return one of the FORMS. Raises UsageError if it has no setting for something planned."""
    return FORMS[form](run)


def shell_line(run: RunSettings) -> str:
    """Return the command line of llama-server."""
    return shlex.join([*printed_program().split(), *run.words])


def _preset(run: RunSettings) -> str:
    """Return a section of an INI file for llama-server's `--models-preset`.

    Keys are options without dashes; `;` and `#` begin a comment anywhere. Source: llama.cpp's common/preset.cpp.
    """
    words = run.words
    _refuse("preset", {"a name with ; or #": any(";" in word or "#" in word for word in words)})
    lines = [f"[{run.name}]"]
    for word, value in itertools.pairwise([*words, "-"]):
        if word.startswith("-"):
            lines.append(f"{word.lstrip('-')} = {'true' if value.startswith('-') else value}")
    return "\n".join(lines)


def _llama_swap(run: RunSettings) -> str:
    """Return a configuration of llama-swap, which splits the command as a POSIX shell does; `${...}` is a macro."""
    words = run.words
    _refuse("llama-swap", {"a name with ${": any("${" in word for word in words)})
    command = f"{printed_program()} --port ${{PORT}} {shlex.join(words)}"
    return f"models:\n  {json.dumps(run.name)}:\n    cmd: {json.dumps(command, ensure_ascii=False)}"


def _docker(run: RunSettings) -> str:
    """Return the command line of Docker, with llama.cpp's image for the GPUs, reachable from this machine alone.

    Folders keep their paths within the container; downloads are kept in a volume.
    """
    backends, folders = dict.fromkeys(each for each in run.backends if each != _RPC), _folders(run)
    _refuse("docker", _docker_obstacles(run, list(backends), folders))
    image, *options = next((_IMAGES[each] for each in backends), (_IMAGE,))
    if run.setup.mlock:
        options += ["--ulimit", "memlock=-1"]
    for folder in folders:
        options += ["-v", f"{folder}:{folder}:ro"]
    if any(_is_remote(each) for each in (run.file, run.draft) if each is not None):
        options += ["-v", "llama.cpp:/root/.cache"]
    return shlex.join(["docker", "run", "--rm", *options, "-p", "127.0.0.1:8080:8080", image, *run.words])


def _docker_obstacles(run: RunSettings, backends: list[str], folders: Iterable[Path]) -> dict[str, object]:
    return {
        "GPUs of different makers": len(backends) > 1,
        **{f"GPUs of {each}": each not in _IMAGES for each in backends},
        "a file whose place is unknown": run.notes,
        "a folder with a colon in its name": any(":" in str(folder) for folder in folders),
        "a file in the root folder": Path("/") in folders,
        "an RPC server of this machine, which a container does not reach": any(
            each.startswith(_LOOPBACK) for each in run.setup.rpc_servers
        ),
    }


def _folders(run: RunSettings) -> dict[Path, None]:
    """Return the folders of the files on this disk, and of those that they link to."""
    paths = [path for file in (run.file, run.draft) if file and not _is_remote(file) for path in file.paths]
    if run.projector is not None and run.projector.path is not None:
        paths.append(run.projector.path)
    linked = [path.resolve() for path in paths if path.is_symlink()]
    return dict.fromkeys(path.absolute().parent for path in (*paths, *linked))


def _modelfile(run: RunSettings) -> str:
    """Return a Modelfile, with how to start Ollama's server, if its defaults do not do, and how to run the model.

    Ollama gets the context of one slot.
    """
    setup = run.setup
    _refuse("modelfile", _ollama_obstacles(run))
    environment = _ollama_environment(setup)
    lines = [f"# ollama create {run.name} -f Modelfile; ollama run {run.name}"]
    if environment:
        lines.insert(0, f"# restart Ollama's server, for all its models: {' '.join(environment)} ollama serve")
    lines += [f"FROM {each}" for each in _sources(run.file, run.placeholder)]
    parameters = {
        "num_ctx": setup.n_ctx and setup.n_ctx // setup.n_seq_max,
        "num_gpu": _num_gpu(run),
        "main_gpu": setup.main_gpu,
        "num_batch": None if setup.n_ubatch == _DEFAULT.n_ubatch else setup.n_ubatch,
        "num_thread": setup.threads,
        "use_mmap": None if setup.mmap else "false",
    }
    lines += [f"PARAMETER {each} {value}" for each, value in parameters.items() if value is not None]
    return "\n".join(lines)


def _num_gpu(run: RunSettings) -> int | None:
    """Return the layers to put on GPUs; None for Ollama's own choice."""
    if run.setup.n_gpu_layers >= 0:
        return run.setup.n_gpu_layers
    return ALL_LAYERS if run.backends else None


def _ollama_obstacles(run: RunSettings) -> dict[str, object]:
    """Return the settings that have no equivalent in Ollama, with whether each is there."""
    setup = run.setup
    kv_types = f"a KV cache of K {setup.type_k} and V {setup.type_v}"
    return {
        "a draft": run.draft is not None or setup.mtp,
        kv_types: setup.type_k != setup.type_v or setup.type_k not in _OLLAMA_KV_TYPES,
        "experts or single tensors in main memory": setup.tensor_overrides,
        "a choice among GPUs": setup.devices,
        "a KV cache that slots share": setup.kv_unified and setup.n_seq_max > 1,
        "devices of other machines": setup.rpc_servers,
        "a separate projector file": run.projector is not None,
    }


def _ollama_environment(setup: LlamaConfig) -> list[str]:
    """Return the variables of Ollama's server, for all its models; llama.cpp enables flash attention for a quantized V.

    Source: Ollama's FAQ.
    """
    is_quantized = setup.type_v != "f16" and setup.flash_attn == "auto"
    variables = {
        "OLLAMA_FLASH_ATTENTION": _OLLAMA_FLASH_ATTN.get("on" if is_quantized else setup.flash_attn),
        "OLLAMA_KV_CACHE_TYPE": None if setup.type_k == "f16" else setup.type_k,
        "OLLAMA_NUM_PARALLEL": None if setup.n_seq_max == 1 else setup.n_seq_max,
    }
    return [f"{name}={value}" for name, value in variables.items() if value is not None]


def _sources(file: FileToRun, unknown: str) -> list[str]:
    """Return the files of a Modelfile, or the repo that Ollama downloads."""
    if _is_remote(file):
        return [f"hf.co/{file.repo}:{file.quant}"]
    return [_text_of([path], f"./{unknown}") for path in file.paths] or [f"./{unknown}"]


def _file_words(file: FileToRun, option: str, repo_option: str, unknown: str) -> list[str]:
    """Return the option that names a file, or the repo that it is downloaded from."""
    if not _is_remote(file):
        return [option, _text_of(file.paths[:1], unknown)]
    if file.quant.lower().endswith(".gguf"):
        return [repo_option, file.repo, "-hff", file.quant]
    return [repo_option, f"{file.repo}:{file.quant}"]


def _projector_words(file: FileToRun, projector: Projector | None) -> list[str]:
    """Return the option of a projector; `-hf` downloads and loads the repo's own."""
    is_remote = _is_remote(file)
    if projector is None:
        return ["--no-mmproj"] if is_remote else []
    if projector.path is not None:
        return ["--mmproj", _text_of([projector.path], f"mmproj-{_PLACEHOLDER}")]
    if projector.url:
        return ["--mmproj-url", projector.url]
    return [] if is_remote else ["--mmproj", f"mmproj-{_PLACEHOLDER}"]


def _text_of(paths: Iterable[Path], unknown: str) -> str:
    """Return the first path; the placeholder without one, or if its name has characters that no text should have."""
    path = next(iter(paths), None)
    return unknown if path is None or not str(path).isprintable() else str(path.absolute())


def _is_remote(file: FileToRun) -> bool:
    """Return whether the program that runs it has to download it."""
    return bool(file.repo) and not (file.is_here and file.paths)


def _refuse(form: str, obstacles: Mapping[str, object]) -> None:
    """Raise UsageError if any of the obstacles is there."""
    if found := [each for each, is_there in obstacles.items() if is_there]:
        raise UsageError(say("pick.no_form", form=form, obstacles=in_words(found)), "use --as sh")


FORMS: Mapping[str, Callable[[RunSettings], str]] = {
    "sh": shell_line,
    "preset": _preset,
    "llama-swap": _llama_swap,
    "modelfile": _modelfile,
    "docker": _docker,
}
