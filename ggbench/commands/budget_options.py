"""Options for the memory to plan for and what shares it, and the dry allocator of a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from ggbench.commands.options import PATH, HubOptions, as_record, field_options, memory_option
from ggbench.engines.contract import Engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.fields import SIZE_OR_NONE, FieldKind, Option, joined
from ggbench.record import Record
from ggbench.units import counted, exact_size

if TYPE_CHECKING:
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.sizing.dry_allocator import DryAllocator
    from ggbench.sizing.plan_record import Budget


_GPUS = FieldKind(lambda text: (text,), joined, "NAME|SIZE,...", names_option=False)


class BudgetOptions(Record):
    """The options for the memory to plan for, as typed."""

    gpu: Annotated[
        tuple[str, ...],
        Option(
            "",
            "Plan for rtx-4090, rtx-3090x2 or 24GiB@936GB/s. Default: this machine.",
            _GPUS,
            "memory",
            is_repeated=True,
        ),
    ] = ()
    vram: Annotated[
        str | None,
        Option(
            "",
            "Plan for a GPU with this much memory, e.g. 24GiB; 24564 is in MiB. With --gpu, replace that card's.",
            FieldKind(metavar="SIZE"),
            "rare",
        ),
    ] = None
    ram: Annotated[
        str | None,
        Option(
            "",
            "Plan for this main memory, e.g. 64GiB@60GB/s. Also 64GiB@ddr5-6000x2.",
            FieldKind(metavar="SIZE[@RATE]"),
            "memory",
        ),
    ] = None
    reserve: Annotated[
        int | None,
        Option(
            "",
            "Memory to keep for llama.cpp and a desktop. 0 for none; the output says the default.",
            SIZE_OR_NONE,
            "memory",
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        Option("", "Memory bandwidth for the limits, e.g. 1008GB/s.", FieldKind(metavar="RATE"), "rare"),
    ] = None
    draft: Annotated[
        str | None,
        Option(
            "-md",
            "Count a draft model for speculative decoding: its weights and its own context of the same length.",
            FieldKind(metavar="MODEL[:QUANT]|FILE"),
            "rare",
        ),
    ] = None
    mmproj: Path | None = None
    published: Any = None
    """The `Projector` that `--mmproj auto` means for a model that is not on this disk; not an option."""

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """Names and values, for the command line that reproduces a row."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "published")
        written: dict[str, Callable[[Any], str]] = {
            "gpu": joined,
            "reserve": exact_size,
        }
        return tuple(
            (name.replace("_", "-"), written.get(name, str)(value))
            for name, value in values
            if value or value == 0
        )

    @property
    def is_described(self) -> bool:
        """Whether it is not this machine's."""
        return bool(self.gpu) or self.vram is not None or self.ram is not None

    def budget(self, setup: LlamaConfig, *, measures: bool = True) -> Budget:
        """Return the memory; with `measures`, the bandwidth of main memory is measured if it is not known yet.

        Raises like `sizing.budget`, UsageError for several GPUs, and BadFile for a file that is not a projector.
        """
        from ggbench.sizing.budget import with_main_memory
        from ggbench.sizing.projectors import read_projector

        budget = with_main_memory(self._without_projector(setup, measures=measures))
        if self.mmproj is None:
            return budget
        return budget.beside_projector(self.published or read_projector(self.mmproj, setup.flash_attn))

    def of_model(self, ref: ModelRef | None, setup: LlamaConfig, hub: HubOptions) -> BudgetOptions:
        """Return the options with the projector that `--mmproj auto` means. Raises like `published_projector`."""
        if self.mmproj is None:
            return self
        from ggbench.sizing.projectors import find_projector, published_projector

        is_elsewhere = ref is not None and ref.kind in ("catalog", "twin", "hub", "published_twin")
        if ref is not None and is_elsewhere and str(self.mmproj) == "auto":
            return replace(self, published=published_projector(ref, hub.access(), setup.flash_attn))
        return replace(self, mmproj=find_projector(self.mmproj, ref))

    def _without_projector(self, setup: LlamaConfig, *, measures: bool) -> Budget:
        from ggbench.machine.description import describe_machine
        from ggbench.sizing.budget import described_budget, machine_budget
        from ggbench.stats.decode_timing import Bandwidth
        from ggbench.units import parse_bandwidth

        reserve_bytes, limit_bytes = self.reserve, setup.memory_limit_bytes
        if self.is_described:
            if setup.rpc_servers:
                raise UsageError("--rpc plans for the devices of the servers", "omit --gpu, --vram and --ram")
            machine = describe_machine(self.gpu, self.ram, vram=self.vram, rate=self.bandwidth)
            budget = described_budget(machine, reserve_bytes=reserve_bytes, limit_bytes=limit_bytes)
            used = setup.used_gpus([each.ggml_name for each in budget.devices])
            budget = budget.used_by(replace(setup, devices=tuple(used)))
        else:
            rate = None if self.bandwidth is None else Bandwidth(parse_bandwidth(self.bandwidth), "given")
            budget = machine_budget(setup, reserve_bytes=reserve_bytes, bandwidth=rate, measures=measures)
        _check_split(setup, budget)
        return budget


def find_draft(text: str | None, setup: LlamaConfig, hub: HubOptions) -> Target | None:
    """Return the draft model that `text` names, with its header; None without one.

    Raises UsageError for options of a draft that exclude each other, or without any; Unsupported for a draft head.
    """
    check_draft(text, setup)
    if text is None:
        return None
    from ggbench.models.targets import draft_ref, resolve_headers, single
    from ggbench.sizing.drafts import check_stands_alone

    draft = single(resolve_headers(draft_ref(text), hub=hub.access()))
    check_stands_alone(draft.header())
    return draft


def with_draft(budget: Budget, draft: Target | None) -> Budget:
    """Return the budget of a model that `draft` runs beside."""
    return replace(budget, draft=draft and draft.to_run)


def check_draft(text: str | None, setup: LlamaConfig) -> None:
    """Raise UsageError for options of a draft that exclude each other, or without any; None means no draft model."""
    if not text and not setup.mtp and setup != setup.undrafted():
        raise UsageError(
            "--type-k-draft, --type-v-draft and --spec-draft-n-max are for a draft",
            "add --draft or --mtp, or omit them",
        )
    if text and setup.mtp:
        raise UsageError("--draft and --mtp exclude each other", "omit one of them")


def start_allocator(setup: LlamaConfig, budget: Budget, draft: Target | None = None) -> DryAllocator:
    """Return the allocator of a setup and a draft model, if there is one, whose worker has been started."""
    from ggbench.engines.contract import launch_engine

    return dry_allocator(launch_engine(setup), setup, budget, draft)


def dry_allocator(engine: Engine, setup: LlamaConfig, budget: Budget, draft: Target | None) -> DryAllocator:
    """Return the allocator for a plan, which stops `engine` at its end."""
    from ggbench.engines.contract import launch_engine
    from ggbench.machine.host import default_threads
    from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load

    loaded = replace(setup_to_load(setup, budget), threads=setup.threads or default_threads())
    drafts = None if draft is None else draft.header()
    return DryAllocator(engine, loaded, budget.devices, drafts, lambda: launch_engine(loaded))


def _check_split(setup: LlamaConfig, budget: Budget) -> None:
    """Raise UsageError for a tensor split into more shares than there are GPUs, or for a split by rows.

    Source of the latter: https://github.com/ggml-org/llama.cpp/pull/24216.
    """
    n_devices = len(budget.devices)
    if setup.split_mode == "row":
        what = "-sm row is not planned: llama.cpp has removed it for all but SYCL (b9890)"
        raise UsageError(what, "use -sm tensor, which replaces it, or -sm layer")
    if len(setup.tensor_split) > max(1, n_devices):
        what = f"a split into {len(setup.tensor_split)} shares, for {counted(n_devices, 'GPU')}"
        raise UsageError(what, "pass a share for each GPU")


def _record(**given: Any) -> BudgetOptions:  # noqa: ANN401 - the fields' own types
    return BudgetOptions(**given)


budget_options = as_record(
    "memory",
    _record,
    BudgetOptions.__struct_fields__,
    *field_options(BudgetOptions),
    memory_option(
        "-mm --mmproj",
        "Count this multimodal projector (mmproj GGUF); auto for the one beside MODEL or in its repo.",
        PATH,
        metavar="FILE|auto",
    ),
)
"""Add --gpu, --vram, --reserve, --bandwidth and --mmproj; the command gets `memory`, a BudgetOptions."""

_MACHINE = ("gpu", "ram", "reserve")
machine_options = as_record("memory", _record, _MACHINE, *field_options(BudgetOptions, _MACHINE))
"""Add --gpu, --ram and --reserve alone, for what may be foreseen for a machine that is not here."""
