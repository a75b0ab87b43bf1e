"""How a model is loaded and the memory that is planned for: the options, and which go with which engine and machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

from ggbench.commands.options import TOKENS, MeasureRequest, as_record, field_options, model_option, projector_option
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import KV_TYPES, LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import SIZE_OR_NONE, FieldKind, Option, config_options, long_flag, options_of
from ggbench.models.engine_models import own_models
from ggbench.plugins import load_plugin
from ggbench.text import in_words
from ggbench.units import format_count

if TYPE_CHECKING:
    from ggbench.commands.output import Output
    from ggbench.engines.events import Memory
    from ggbench.runs.experiment import Experiment
    from ggbench.sizing.plan_record import Budget


_Function = TypeVar("_Function", bound=Callable[..., Any])
_SWITCHED_OFF = ("mmap", "kv_offload")
"""Fields that are on by default, whose options switch them off."""
_GPU_FIELDS = ("n_gpu_layers", "main_gpu", "tensor_split", "split_mode")
_KV = ("type_k", "type_v")
_REST = [name for name in options_of(LlamaConfig) if name not in (*_KV, "n_ctx")]


def _config(**given: Any) -> LlamaConfig:  # noqa: ANN401 - the fields' own types
    given |= {name: not given.pop(f"no_{name}") for name in _SWITCHED_OFF}
    return LlamaConfig(**{name: value for name, value in given.items() if value is not None})


def _load_options(*names: str, hides_n_ctx: bool = False) -> Callable[[_Function], _Function]:
    hidden = [model_option("-c --n-ctx", "", TOKENS, hidden=True)] if hides_n_ctx else []
    taken = [*LlamaConfig.__struct_fields__, *(f"no_{name}" for name in _SWITCHED_OFF)]
    return as_record(
        "setup", _config, taken, *field_options(LlamaConfig, names), *hidden, *field_options(LlamaConfig, _REST)
    )


load_options = _load_options(*_KV, "n_ctx")
"""Add the options of how llama.cpp loads a model; the command gets them as `setup`, a LlamaConfig."""
load_options_but_kv_types = _load_options("n_ctx")
"""The same without the types of the KV cache, for a command that takes several."""
load_options_but_cache = _load_options()
"""The same without n_ctx too, for a command that chooses the whole cache."""
load_options_of_cases = _load_options(*_KV, hides_n_ctx=True)
"""The same for a command that chooses every n_ctx itself: its help has none, and a given one is refused."""


def _kv_pairs(type_k: str, type_v: str) -> tuple[tuple[str, str], ...]:
    """Pairs of types of K and V; one type goes with each of several. Raises UsageError."""
    lists = [[part.strip().lower() for part in text.split(",")] for text in (type_k, type_v)]
    for name in (*lists[0], *lists[1]):
        if name not in KV_TYPES:
            raise UsageError(f"{name!r} is not a type of a KV cache", f"llama.cpp has {', '.join(KV_TYPES)}")
    longest = max(map(len, lists))
    if any(len(each) not in (1, longest) for each in lists):
        raise UsageError(
            f"{len(lists[0])} types of the K cache and {len(lists[1])} of the V cache do not pair up",
            "give as many of each, or one",
        )
    pairs = zip(*(each * longest if len(each) == 1 else each for each in lists), strict=True)
    return tuple(dict.fromkeys((k, v) for k, v in pairs))


def kv_list_options(default: str = "f16") -> Callable[[_Function], _Function]:
    """Add --type-k and --type-v, each a list; the command gets the pairs as `kv_types`."""
    return as_record(
        "kv_types",
        _kv_pairs,
        ("type_k", "type_v"),
        model_option("-ctk --type-k", "Data types of the K cache, e.g. f16,q8_0.", metavar="TYPE,...", default=default),
        model_option(
            "-ctv --type-v", "Data types of the V cache, as many or one.", metavar="TYPE,...", default=default
        ),
    )


class BudgetOptions(msgspec.Struct, frozen=True):
    """What a person gave, as typed."""

    gpu: Annotated[str | None, Option(kind=FieldKind(metavar="NAME"), heading="memory")] = None
    """Plan for a known GPU, e.g. rtx-4090. Default: this machine."""
    vram: Annotated[str | None, Option(kind=FieldKind(metavar="SIZE"), heading="memory")] = None
    """Plan for a GPU with this much memory, e.g. 24GiB."""
    reserve: Annotated[str | None, Option(kind=FieldKind(metavar="SIZE"), heading="memory")] = None
    """Memory to leave free for driver and runtime; 0 for none. Default: printed."""
    bandwidth: Annotated[str | None, Option(kind=FieldKind(metavar="RATE"), heading="memory")] = None
    """Memory bandwidth for the limits, e.g. 1008GB/s."""
    mmproj: Path | None = None

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """Names and values, for the line that reproduces what they were given for."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return tuple((name, str(value)) for name, value in values if value is not None)

    @property
    def reserve_bytes(self) -> int | None:
        """Memory to leave free. Raises UsageError."""
        return None if self.reserve is None else SIZE_OR_NONE.read(self.reserve)

    def budget(self, setup: LlamaConfig, *, measures: bool = True) -> Budget:
        """Return the memory; `measures` lets the bandwidth of main memory be measured the first time.

        Raises UsageError and UnknownName as `sizing.budget` does, and for several GPUs; BadFile for a projector that is
        none.
        """
        from ggbench.gguf_file.header import read_projector

        budget = self._whole(setup, measures=measures)
        if self.mmproj is None:
            return budget
        return replace(budget, mmproj=str(self.mmproj), mmproj_bytes=read_projector(self.mmproj).weight_bytes)

    def _whole(self, setup: LlamaConfig, *, measures: bool) -> Budget:
        """The memory without regard to a projector."""
        from ggbench.machine.host import default_threads
        from ggbench.sizing.budget import given_budget, machine_budget
        from ggbench.stats.decode_timing import Bandwidth
        from ggbench.units import parse_bandwidth, parse_size

        if setup.rpc_servers and setup.n_gpu_layers:
            return self._of_devices(setup)
        if setup.tensor_split:
            raise UsageError("a plan counts one GPU", "omit --tensor-split; --main-gpu says which one")
        reserve_bytes = self.reserve_bytes
        rate = None if self.bandwidth is None else Bandwidth(parse_bandwidth(self.bandwidth), "given")
        vram_bytes = None if self.vram is None else parse_size(self.vram)
        limit_bytes = setup.memory_limit_bytes
        if self.gpu is not None or vram_bytes is not None:
            return given_budget(
                gpu=self.gpu,
                vram_bytes=vram_bytes,
                reserve_bytes=reserve_bytes,
                bandwidth=rate,
                limit_bytes=limit_bytes,
            )
        return machine_budget(
            n_gpu_layers=setup.n_gpu_layers,
            main_gpu=setup.main_gpu,
            threads=default_threads(),  # the memory's bandwidth is all that its processors can read, as for a run
            reserve_bytes=reserve_bytes,
            bandwidth=rate,
            limit_bytes=limit_bytes,
            measures=measures,
        )

    def _of_devices(self, setup: LlamaConfig) -> Budget:
        """The memory of RPC servers and of this machine's GPUs. Raises UsageError and NetworkError."""
        from ggbench.sizing.budget import devices_budget
        from ggbench.sizing.cluster import device_memories

        if self.gpu is not None or self.vram is not None:
            raise UsageError("--rpc plans for the devices of the servers", "omit --gpu and --vram")
        check_rpc(setup)
        return devices_budget(
            device_memories(setup), limit_bytes=setup.memory_limit_bytes, reserve_bytes=self.reserve_bytes
        )


def _record(**given: Any) -> BudgetOptions:  # noqa: ANN401 - the fields' own types
    path = given.pop("mmproj", None)
    return BudgetOptions(**given, mmproj=path and path.absolute())


budget_options = as_record(
    "memory",
    _record,
    BudgetOptions.__struct_fields__,
    *field_options(BudgetOptions),
    projector_option,
)
"""Add --gpu, --vram, --reserve, --bandwidth and --mmproj; the command gets them as `memory`, a BudgetOptions."""


def check_main_gpu(setup: LlamaConfig) -> None:
    """Raise UsageError for a `--main-gpu` above the GPUs that CUDA counts here; other backends count their own."""
    if setup.main_gpu is None or not setup.n_gpu_layers or not _is_built_for_cuda():
        return
    from ggbench.machine.gpus import cuda_devices, list_gpus

    n_gpus = len(cuda_devices(list_gpus()))
    if 0 < n_gpus <= setup.main_gpu:
        there = "there is 1, number 0" if n_gpus == 1 else f"there are {format_count(n_gpus)}, counted from 0"
        raise UsageError(f"there is no GPU {setup.main_gpu} here", there)


def _is_built_for_cuda() -> bool:
    package = importlib.util.find_spec("llama_cpp")
    return bool(package and package.origin and any((Path(package.origin).parent / "lib").glob("libggml-cuda*")))


class IgnoredGpuOptions:
    """A notice about GPU options that have no effect, as soon as a loaded model shows it; once for a command."""

    def __init__(self, output: Output) -> None:
        self._output = output
        given = click.get_current_context().get_parameter_source
        self._names = [long_flag(name, None) for name in _GPU_FIELDS if given(name) is ParameterSource.COMMANDLINE]

    def look(self, setup: EngineConfig, memory: Memory) -> None:
        """Print the notice where a model with layers to offload lies in main memory with all of its buffers."""
        if not memory.buffers or not setup.loads_gguf or not setup.may_use_gpu:
            return
        if all(each.is_host for each in memory.buffers):
            self.report(
                "llama.cpp can use no GPU here",
                'with an NVIDIA GPU in this machine: CMAKE_ARGS="-DGGML_CUDA=on" ./scripts/setup',
            )
        self._names = []

    def report(self, reason: str, hint: str) -> None:
        """Print which of the options given have no effect, and why."""
        if self._names:
            verb = "is" if len(self._names) == 1 else "are"
            self._output.notice(f"{reason}, so {in_words(self._names)} {verb} ignored; {hint}")


def check_rpc(setup: EngineConfig) -> None:
    """Raise UsageError for a setup with RPC servers where llama.cpp was built without RPC."""
    from ggbench.engines.llama.ggml_devices import BUILD_HINT, is_built_with_rpc

    if getattr(setup, "rpc_servers", ()) and not is_built_with_rpc():
        raise UsageError("--rpc: this llama.cpp was built without RPC", BUILD_HINT)


def given_setup(experiment: Experiment, asked: MeasureRequest) -> EngineConfig:
    """Return the config of the engine that loads MODEL, as far as the options say; asks no server.

    Raises UsageError where options of one engine are given for another, or where the experiment needs a file or a GGUF.
    """
    ref = asked.model
    for name, package in own_models():
        own = tuple(config_options(asked.configs[name])) if name in asked.configs and name != ref.engine else ()
        if own:
            schemes = " or ".join(f"{scheme}:" for scheme in package.SCHEMES)
            raise UsageError(
                f"{_names(own)} for a {package.NOUN}, and {ref.text} is none", f"omit them, or give {schemes}"
            )
    if not ref.is_server and asked.server is not None and (given := asked.server.given):
        raise UsageError(f"{_names(given)} for a server, and {ref.text} is none", "omit them, or give a URL")
    if ref.is_server:
        experiment.refuse_servers()
        _refuse(asked, (), "a model that is loaded here, and a server has loaded its own", _OF_SERVERS)
    if not ref.engine:
        return asked.setup
    experiment.refuse_all_but_gguf()
    options = load_plugin("ggbench.engines", ref.engine, "options", "engine")
    config: EngineConfig = asked.configs.get(ref.engine) or options.CONFIG()
    _refuse(asked, options.SHARED, f"a GGUF, and {config.program} loads {ref.text}", options.TAKES)
    return replace(config, **{field: getattr(asked.setup, field) for field in options.SHARED})  # type: ignore[type-var]


_OF_SERVERS = "give the server such options when it starts, and omit them here"


def _refuse(asked: MeasureRequest, shared: Sequence[str], what: str, hint: str) -> None:
    """Raise UsageError for an option of llama.cpp's but those of `shared` fields."""
    given = tuple(config_options(replace(asked.setup, **dict.fromkeys(shared))))
    if asked.model.is_server and asked.bandwidth is not None:
        given = ("--bandwidth", *given)
    if asked.tuned:
        given = ("--tuned", *given)
    if given:
        raise UsageError(f"{_names(given)} for {what}", hint)


def _names(words: Sequence[str]) -> str:
    names = [word for word in words if word.startswith("-")]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
