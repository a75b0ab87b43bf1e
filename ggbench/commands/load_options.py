"""Options for loading a model and for the memory to plan for, and the engines and machines that accept them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from msgspec.structs import replace

from ggbench.commands.options import (
    TOKENS,
    MeasureRequest,
    as_record,
    field_option,
    field_options,
    model_option,
    option,
)
from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import KV_TYPES, LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import config_options, long_flag, options_of
from ggbench.text import in_words

if TYPE_CHECKING:
    from ggbench.commands.output import Output
    from ggbench.engines.events import Memory
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment, FoundSetup, Job


_Function = TypeVar("_Function", bound=Callable[..., Any])
_SWITCHED_OFF = ("mmap", "kv_offload")
"""Fields that are on by default, with the options that turn them off."""
_GPU_FIELDS = ("n_gpu_layers", "main_gpu", "tensor_split", "split_mode")
_KV = ("type_k", "type_v")
_SLOTS = ("n_seq_max", "kv_unified")
"""Fields of commands about memory; others measure one sequence, or as many as they are asked for."""
_DRAFTS = ("mtp", "type_k_draft", "type_v_draft")
"""Fields of commands about memory, too."""
_REST = [name for name in options_of(LlamaConfig) if name not in (*_KV, *_SLOTS, *_DRAFTS, "n_ctx")]


def _config(**given: Any) -> LlamaConfig:  # noqa: ANN401 - the fields' own types
    given |= {name: not given.pop(f"no_{name}") for name in _SWITCHED_OFF}
    return LlamaConfig(**{name: value for name, value in given.items() if value is not None})


def _load_options(*names: str, n_ctx: str = "", hides_n_ctx: bool = False) -> Callable[[_Function], _Function]:
    """Return a decorator for these fields and the rest; `n_ctx` replaces the field's help of --n-ctx."""
    first = [field_option(LlamaConfig, name, n_ctx if name == "n_ctx" else "") for name in names]
    hidden = [model_option("-c --n-ctx", "", TOKENS, hidden=True)] if hides_n_ctx else []
    taken = [*LlamaConfig.__struct_fields__, *(f"no_{name}" for name in _SWITCHED_OFF)]
    return as_record("setup", _config, taken, *first, *hidden, *field_options(LlamaConfig, _REST))


load_options = _load_options(*_KV, "n_ctx")
"""Add llama.cpp's options for loading a model; the command gets `setup`, a LlamaConfig."""
load_options_of_decodes = _load_options(*_KV, "n_ctx", "kv_unified")
"""Like `load_options`, plus --kv-unified."""
load_options_of_drafts = _load_options(*_KV, "n_ctx", *_DRAFTS)
"""Like `load_options`, plus what drafts."""
load_options_of_plans = _load_options(
    *_KV,
    "n_ctx",
    *_SLOTS,
    *_DRAFTS,
    n_ctx="Context length, e.g. 16k or 16,384. Default: 8192, or the training context if shorter.",
)
load_options_of_searches = _load_options(
    *_KV,
    "n_ctx",
    *_SLOTS,
    *_DRAFTS,
    n_ctx="Largest n_ctx to try, e.g. 16k. Default: the training context; no limit with --beyond-train.",
)
load_options_but_kv_types = _load_options("n_ctx", n_ctx="Tokens of a chunk, e.g. 2k. Default: 512.")
"""Like `load_options`, without KV cache types, for a command that takes several and scores chunks of --n-ctx tokens.
"""
load_options_but_cache = _load_options(*_SLOTS, *_DRAFTS)
"""Without KV types and n_ctx; with slots and what drafts."""
load_options_of_cases = _load_options(*_KV, hides_n_ctx=True)
"""For a command that chooses every n_ctx itself: --n-ctx is hidden, and rejected if given."""
load_options_of_batches = _load_options(*_KV, "kv_unified", hides_n_ctx=True)
"""Like `load_options_of_cases`, plus --kv-unified."""


def reloaded(setup: LlamaConfig, words: Sequence[str]) -> LlamaConfig:
    """Return a setup with options of loading in place of its own: `-fa off`. Raises UsageError."""

    @load_options
    @click.pass_context
    def changed(context: click.Context, setup: LlamaConfig) -> dict[str, object]:
        source = context.get_parameter_source
        given = [name.removeprefix("no_") for name in context.params if source(name) is ParameterSource.COMMANDLINE]
        return {name: getattr(setup, name) for name in given}

    params = changed.__click_params__  # type: ignore[attr-defined]
    command = click.Command("llama", params=params, callback=changed, add_help_option=False)
    try:
        return replace(setup, **command.main(list(words), standalone_mode=False))
    except click.ClickException as error:
        raise UsageError(f"--engine llama: {error.format_message()}", "it takes options of loading: -fa off") from None


def _kv_pairs(type_k: str, type_v: str) -> tuple[tuple[str, str], ...]:
    """Pair the types of K and V; a single type is paired with each of the others. Raises UsageError."""
    lists = [[part.strip().lower() for part in text.split(",")] for text in (type_k, type_v)]
    for name in (*lists[0], *lists[1]):
        if name not in KV_TYPES:
            raise UsageError(f"{name!r} is not a KV cache type", f"llama.cpp has {', '.join(KV_TYPES)}")
    longest = max(map(len, lists))
    if any(len(each) not in (1, longest) for each in lists):
        raise UsageError(
            f"{len(lists[0])} types of the K cache and {len(lists[1])} of the V cache do not pair up",
            "pass the same number of each, or a single one",
        )
    pairs = zip(*(each * longest if len(each) == 1 else each for each in lists), strict=True)
    return tuple(dict.fromkeys((k, v) for k, v in pairs))


def kv_list_options(default: str = "f16") -> Callable[[_Function], _Function]:
    """Add --type-k and --type-v, each a list; the command gets `kv_types`, a tuple of pairs."""
    return as_record(
        "kv_types",
        _kv_pairs,
        ("type_k", "type_v"),
        model_option("-ctk --type-k", "Data types of the K cache, e.g. f16,q8_0.", metavar="TYPE,...", default=default),
        model_option(
            "-ctv --type-v", "Data types of the V cache: one, or one per K type.", metavar="TYPE,...", default=default
        ),
    )


def check_main_gpu(setup: LlamaConfig) -> None:
    """Raise UsageError for a `--main-gpu` that CUDA does not have; other backends check their own."""
    if setup.main_gpu is None or not setup.n_gpu_layers or not _is_built_for_cuda():
        return
    from ggbench.machine.gpus import cuda_devices, list_gpus

    n_gpus = len(cuda_devices(list_gpus()))
    if 0 < n_gpus <= setup.main_gpu:
        raise UsageError(f"this machine has no GPU {setup.main_gpu}", f"--main-gpu is at most {n_gpus - 1}")


def _is_built_for_cuda() -> bool:
    package = importlib.util.find_spec("llama_cpp")
    return bool(package and package.origin and any((Path(package.origin).parent / "lib").glob("libggml-cuda*")))


class IgnoredGpuOptions:
    """Print one notice about GPU options without effect, once a loaded model shows it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        given = click.get_current_context().get_parameter_source
        self._names = [long_flag(name, None) for name in _GPU_FIELDS if given(name) is ParameterSource.COMMANDLINE]

    def look(self, setup: EngineConfig, memory: Memory) -> None:
        """Print the notice if all buffers of a model with layers to offload are in main memory."""
        if not memory.buffers or not setup.loads_gguf or not setup.may_use_gpu:
            return
        if all(each.is_host for each in memory.buffers):
            self.report(
                "llama.cpp can use no GPU here",
                'with an NVIDIA GPU in this machine: CMAKE_ARGS="-DGGML_CUDA=on" ./scripts/setup',
            )
        self._names = []

    def report(self, reason: str, hint: str) -> None:
        """Print which of the given options had no effect, and why."""
        if self._names:
            self._output.notice(f"{reason}, so {in_words(self._names)} had no effect; {hint}")


def check_rpc(setup: EngineConfig) -> None:
    """Raise UsageError for a setup with RPC servers if ggbench's llama.cpp runs it and was built without RPC."""
    from ggbench.engines.llama.ggml_devices import BUILD_HINT, is_built_with_rpc

    if getattr(setup, "rpc_servers", ()) and not setup.is_served and not is_built_with_rpc():
        raise UsageError("--rpc: this llama.cpp was built without RPC", BUILD_HINT)


def given_setup(experiment: Experiment, asked: MeasureRequest) -> EngineConfig:
    """Return the config of MODEL's engine from the options, without contacting a server.

    Raises UsageError for options of another engine, or if the experiment needs a file or a GGUF.
    """
    from ggbench.models.reference import own_models

    ref = asked.model
    if len(asked.engines) > 1:
        raise UsageError("several engines are compared by ggbench bench and prefill alone", "give one --engine")
    for name, options in own_models().items():
        own = tuple(config_options(asked.configs[name])) if name in asked.configs and name != ref.engine else ()
        if own:
            schemes = " or ".join(f"{scheme}:" for scheme in options.SCHEMES)
            raise UsageError(
                f"{_names(own)} only for a {options.NOUN}, but {ref.text} is not one",
                f"omit them, or give {schemes}",
            )
    if not ref.is_server and asked.server is not None and (given := asked.server.given):
        raise UsageError(f"{_names(given)} only for a server, but {ref.text} is not one", "omit them, or give a URL")
    if ref.is_server:
        experiment.refuse_servers()
        hint = "omit them here; pass them to the server when starting it"
        _refuse(asked, (), "a model that ggbench loads itself, not a server", hint)
    if not ref.engine:
        return asked.setup
    experiment.refuse_all_but_gguf()
    options = own_models()[ref.engine]
    config: EngineConfig = asked.configs.get(ref.engine) or options.CONFIG()
    _refuse(asked, options.SHARED, f"a GGUF, and {config.program} loads {ref.text}", options.TAKES)
    return replace(config, **{field: getattr(asked.setup, field) for field in options.SHARED})  # type: ignore[type-var]


def _refuse(asked: MeasureRequest, shared: Sequence[str], what: str, hint: str) -> None:
    """Raise UsageError for options of llama.cpp, except those of the `shared` fields."""
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


tuned_option = option(
    "--tuned",
    "Use the settings that ggbench tune found for this machine, file and llama.cpp; other options override them.",
    is_flag=True,
)


def with_tuned(jobs: Sequence[Job], asked: MeasureRequest, *, keeps_cache: bool = False) -> list[Job]:
    """With --tuned, return the jobs with the settings found by a search, and print them.

    Among several quants, those without a search keep the defaults, with a notice. Raises UsageError if no quant has
    settings that are up to date. `keeps_cache` leaves the KV cache types as they are.
    """
    if not asked.tuned:
        return list(jobs)
    from ggbench.runs.experiment import experiment_of
    from ggbench.runs.store.database import Store
    from ggbench.show.names import row_labels

    with Store.open() as store:
        found = [experiment_of("tune").find_setup(store, job.target) for job in jobs]
    changed, errors = [], []
    names = row_labels([job.target.subject for job in jobs])
    for job, name, tuned in zip(jobs, names, found, strict=True):
        try:
            taken = require_tuned(job.target, tuned)
        except UsageError as error:
            errors.append(error)
            changed.append(job)
        else:
            asked.output.notice(f"{name}: {taken.text}")
            changed.append(replace(job, setup=taken.of(job.setup, keeps_cache=keeps_cache)))
    if len(errors) == len(jobs):
        raise errors[0]
    asked.output.notice(*(f"{error.message}: measured with the defaults; {error.hint}" for error in errors))
    return changed


def require_tuned(target: Target, found: FoundSetup | None) -> FoundSetup:
    """Return the settings found for a target. Raises UsageError if there are none or they are out of date."""
    from ggbench.runs.experiment import Job, experiment_of
    from ggbench.show.names import quant_name

    if found is not None and not found.stale:
        return found
    name, tune = quant_name(target.subject), experiment_of("tune")
    command = tune.command(Job(tune, target, LlamaConfig(), tune.settings_type()))
    if found is None:
        raise UsageError(f"there are no tuned settings for {name} on this machine", f"{command} searches for them")
    changed = "; ".join(found.stale)
    raise UsageError(
        f"the settings that run {found.run_id} found for {name} are out of date; changed since: {changed}",
        f"{command} searches again",
    )
