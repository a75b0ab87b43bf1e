"""Check a llama-server command: whether it fits a machine, and what it wastes, each by a fit of what would be better.

By default llama-server has four slots in one cache and the training context, and adapts what is not given to the
memory. Sources: `common_params_fit_impl` in common/fit.cpp, tools/server/server.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from msgspec.structs import replace

from ggbench.engines.endings import EngineEnded
from ggbench.engines.llama.command_line import CommandLine
from ggbench.engines.llama.config import UNQUANTIZED, LlamaConfig
from ggbench.engines.llama.defaults import CACHE_RAM_BYTES
from ggbench.engines.llama.flags import changed_flags
from ggbench.errors import Unsupported
from ggbench.expect.loss import expected_cache_loss
from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.speed import expected_curves, speed_at
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import default_threads
from ggbench.models.targets import Target
from ggbench.record import Record
from ggbench.runs.store.health import open_if_any
from ggbench.show.words import say
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.plan import Planners, PlanRequest
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, PlanRow
from ggbench.sizing.what_helps import LARGE_UBATCH, smallest_split, what_helps, with_other_quants
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_curve import interpolated
from ggbench.units import GIB, MIB, format_bytes, format_length, format_number

Kind = Literal["refuses", "fits", "gains", "divides", "bites", "wastes", "spares", "idle"]
"""What a finding says of an option: llama-server refuses it; it would fit with another; it would be faster; it divides
the context; it will do harm; it takes memory or quality for nothing; it leaves much unused;
it has no effect. The most important first."""
MOST_FINDINGS = 7
_CLEAR_GAIN = 1.03
"""Ratio of expected speeds of one file on one machine from which a change is named."""
_MUCH_BYTES = 64 * MIB
_MUCH_LONGER, _LITTLE = 1.5, 0.75
_AUTO_SLOTS = 4
_FIT_MARGIN_MIB, _FIT_CTX = 1024, 4096
"""`fit_params_target` and `fit_params_min_ctx` in common.h."""
_PROMPT = 2048
"""Tokens of the prompt whose time a larger batch shortens."""
_PLACES = {
    "n_gpu_layers": -1, "cpu_moe": False, "n_cpu_moe": 0, "override_tensor": (), "kv_offload": True, "tensor_split": (),
}  # fmt: skip
_LONGER = re.compile(r"-2507\b|-1m\b", re.IGNORECASE)
"""Names of files that were trained with longer contexts than the model of the catalog with their shape."""


class LineFinding(Record):
    """A finding: what an option of the command costs, gains or does not do."""

    kind: Kind
    subject: str
    """The option as the command has it, or as it should be: `-ncmoe 18`."""
    key: str
    """Key of its sentence in the room `check` of words.toml."""
    values: Mapping[str, str | int] = {}
    gain: float | None = None
    """Speed with the change over that of the command; None if it changes none, or is unknown."""

    @property
    def text(self) -> str:
        return say(f"check.{self.key}", subject=self.subject, **self.values)


class Checked(Record):
    """What a command does on a machine."""

    line: CommandLine
    row: PlanRow
    """The plan of what llama-server makes of it."""
    findings: tuple[LineFinding, ...]
    """The most important first."""
    adapted: str = ""
    """What llama-server's `--fit` changes, as options; empty for nothing."""
    better: str = ""
    """The command with what is better; empty if nothing is."""
    has_drafts: bool = False
    """Whether drafts are counted, which the speed of the plan is without."""

    @property
    def refused(self) -> list[str]:
        """What of the command llama-server does not start with."""
        return [each.subject for each in self.findings if each.kind == "refuses"]


def server_setup(line: CommandLine, given: LlamaConfig) -> LlamaConfig:
    """Return the setup of llama-server: four slots of one cache unless a command says otherwise, and all GPUs unless it
    splits nothing.
    """
    given = given if given.split_mode == "none" else replace(given, main_gpu=None)
    if line.value("--parallel") in ("", "-1"):
        return replace(given, n_seq_max=_AUTO_SLOTS, kv_unified=True)
    return given


def check_line(
    line: CommandLine,
    target: Target,
    budget: Budget,
    given: LlamaConfig,
    allocate: Callable[[LlamaConfig], DryAllocator],
    options: tuple[tuple[str, str], ...],
    smaller: Callable[[int], Sequence[Target]],
) -> Checked:
    """Return what a command does whose setup is `given` by `server_setup`; `allocate` starts the allocator for it,
    `options` are of the command of its row, and `smaller` returns other quants of at most a number of bytes.

    Raises GgbenchError if the model cannot be planned, or llama.cpp refuses the setup.
    """
    file = target.header()
    setup, idle = _applied(line, given, file)
    with (
        allocate(setup) as allocator,
        Planners(allocator, PlanRequest(budget, setup, options)) as planners,
        open_if_any() as store,
    ):
        runs = MachineRuns(store, budget)
        try:
            fitter = planners.fitter(target)
            asked = fitter.fit(setup)
            fit = _adapted(fitter, line, asked)
            found = _Search(line, target, fitter, runs, fit)
            findings = [*_refused(line), *idle, *found.all()]
            row = replace(planners.row_of(target, fit), expected=found.speed(fit))
            if not found.best.is_enough:
                others = smaller((row.file_bytes or 0) + fit.left_bytes)
                sized = [planners.row_of(each, planners.fitter(each).fit(fit.setup)) for each in others]
                [row] = with_other_quants([row], sized)
        except EngineEnded as end:
            raise Unsupported(say("plan.refused", why=end.ending.reason), "change what it names") from None
    findings.sort(key=lambda each: (get_args(Kind).index(each.kind), -(each.gain or 0)))
    as_typed = replace(fit.setup, flash_attn=given.flash_attn)
    is_mended = found.best.setup != fit.setup or any(each.kind == "refuses" for each in findings)
    return Checked(
        line,
        row,
        tuple(findings[:MOST_FINDINGS]),
        " ".join(changed_flags(fit.setup, asked.setup)),
        line.changed(as_typed, found.best.setup) if is_mended and found.best.is_enough else "",
        setup.mtp or budget.draft is not None,
    )


def _refused(line: CommandLine) -> Iterator[LineFinding]:
    for each in line.given:
        if each.gone:
            kind: Kind = "idle" if each.option.role == "idle" else "refuses"
            yield LineFinding(kind, each.flag, "gone", {"why": each.gone})


def _applied(line: CommandLine, setup: LlamaConfig, file: ModelFile) -> tuple[LlamaConfig, list[LineFinding]]:
    """Return the setup as llama.cpp applies it to a file, and the options that have no effect on it, or are refused."""
    found = list[LineFinding]()
    kept = tuple(each for each in setup.override_tensor if _matches(each, file))
    drafts = line.last("--model-draft", "--hf-repo-draft")
    is_quantized = setup.flash_attn == "off" and setup.type_v not in UNQUANTIZED
    experts, moved = "-cmoe or -ncmoe", bool(setup.cpu_moe or setup.n_cpu_moe)
    rules: Sequence[tuple[object, Kind, str, str, dict[str, object]]] = (
        (moved and not file.n_expert, "idle", experts, "dense", {"cpu_moe": False, "n_cpu_moe": 0}),
        (kept != setup.override_tensor, "idle", "-ot", "no_tensor", {"override_tensor": kept}),
        (drafts and not line.value("--spec-type"), "idle", "-md", "undrafted", {}),
        (setup.mtp and not file.n_layer_nextn, "idle", "--spec-type draft-mtp", "no_mtp", {"mtp": False}),
        (is_quantized, "refuses", f"-fa off -ctv {setup.type_v}", "needs_flash", {"flash_attn": "auto"}),
    )
    for applies, kind, subject, key, changes in rules:
        if applies:
            found.append(LineFinding(kind, subject, key))
            setup = replace(setup, **changes)
    return _counted(line, setup if setup.mtp or drafts else setup.undrafted(), file), found


def _counted(line: CommandLine, setup: LlamaConfig, file: ModelFile) -> LlamaConfig:
    """Return the setup with the layers, the context and the batch that llama.cpp takes of a file for what is given."""
    setup = replace(setup, n_ubatch=min(setup.n_ubatch, setup.n_batch))
    if setup.n_gpu_layers > file.n_layer:
        setup = replace(setup, n_gpu_layers=-1)
    if setup.cpu_moe:
        setup = replace(setup, cpu_moe=False, n_cpu_moe=file.n_layer)
    if not setup.n_ctx:
        n_streams = setup.n_streams if line.fits else 1
        setup = replace(setup, n_ctx=(file.n_ctx_train or _FIT_CTX) * n_streams)
    return setup


def _matches(override: str, file: ModelFile) -> bool:
    return any(re.search(override.rpartition("=")[0], each.name) for each in file.tensors)


def _adapted(fitter: Fitter, line: CommandLine, asked: Fit) -> Fit:
    """Return the fit of what llama-server makes of a setup by `--fit`: first the context, then layers or experts."""
    budget = _with_margins(fitter.budget, line.value("--fit-target"))
    if not line.fits or (asked.is_enough and _leaves(asked, budget)):
        return asked
    has_context, moves = line.last("--ctx-size") is not None, not line.is_placed and fitter.budget.on_gpu
    roomy = fitter.within(budget)
    fit = asked if has_context else _shortened(roomy, line, roomy.fit(asked.setup))
    if moves:
        fit = roomy.fit(fit.setup)
        fit = fit if fit.is_enough else smallest_split(roomy, fit) or fit
    return fitter.fit(fit.setup)


def _leaves(fit: Fit, budget: Budget) -> bool:
    """Return whether a fit leaves each device the reserve that it has in a budget."""
    kept = zip(fit.devices, budget.devices, strict=False)
    return all((each.left_bytes or 0) + each.reserve_bytes >= memory.reserve_bytes for each, memory in kept)


def _shortened(fitter: Fitter, line: CommandLine, asked: Fit) -> Fit:
    """Return a fit with the context as long as there is room for, and no shorter than `--fit-ctx` in each slot."""
    given = line.value("--fit-ctx")
    least = (int(given) if given.isdecimal() else _FIT_CTX) * asked.setup.n_streams
    n_ctx = min(asked.context.n_ctx, max(least, fitter.longest(asked)))
    return fitter.fit(replace(asked.setup, n_ctx=n_ctx))


def _with_margins(budget: Budget, given: str) -> Budget:
    """Return the budget with what `--fit-target` keeps free of each device, in MiB, instead of the reserves."""
    margins = [int(each) for each in re.split("[,/]+", given) if each.isdecimal()] or [_FIT_MARGIN_MIB]
    margins = margins * len(budget.devices) if len(margins) == 1 else [*margins, *[0] * len(budget.devices)]
    devices = zip(budget.devices, margins, strict=False)
    return replace(budget, devices=tuple(replace(each, reserve_bytes=margin * MIB) for each, margin in devices))


class _Search:
    """Tries what would be better than a command, one change after the other; `best` has all that is."""

    def __init__(self, line: CommandLine, target: Target, fitter: Fitter, runs: MachineRuns, fit: Fit) -> None:
        self.line, self.target, self.fitter, self.runs = line, target, fitter, runs
        self.knows_host = fitter.budget.host is not None and fitter.budget.host.memory_source != ""
        self.fit = self.best = fit
        self.compared = fit
        """The command's, but with a cache that its GPUs decode with; speeds are compared with it."""
        self.kept = dict[str, LineFinding]()
        """Findings that the best has, by key."""
        self.noted = list[LineFinding]()
        """Those that say something else of it."""

    def all(self) -> list[LineFinding]:
        """Return the findings, of steps that each start from the best so far, until none finds a better one."""
        steps: Sequence[Callable[[], None]] = (
            self._cells, self._attention, self._remedies, self._slots, self._cache, self._batch,
            self._placement, self._room, self._threads, self._prompt_cache,
        )  # fmt: skip
        start = None
        while start is not self.best:
            start = self.best
            self.noted.clear()
            for step in steps:
                step()
        return [*self.kept.values(), *self.noted]

    def _note(self, kind: Kind, subject: str, key: str, **values: str | int) -> None:
        self.noted.append(LineFinding(kind, subject, key, values))

    def speed(self, fit: Fit, n: int | None = None) -> Expected | None:
        """Return the expected tokens/s of one user at position n, by default with a full slot."""
        return speed_at(expected_curves(fit.placement, self.runs), n or _slot(fit))

    def _gain(self, fit: Fit, over: Fit) -> float | None:
        """Return the speed of a fit over another's, where both slots end; None if one is unknown."""
        n = min(_slot(fit), _slot(over))
        new, old = self.speed(fit, n), self.speed(over, n)
        return None if new is None or old is None else new.value / old.value

    def _tried(self, **changes: str | int) -> Fit | None:
        """Return the best so far with changes, if that is enough."""
        found = self.fitter.sized(replace(self.best.setup, **changes))
        return found if found is not None and found.is_enough else None

    def _keep(
        self, fit: Fit, kind: Kind, subject: str, key: str, *, gain: float | None = None, **values: str | int
    ) -> None:
        """Keep a fit as the best from now on, and its finding."""
        self.best = fit
        self.kept[key] = LineFinding(kind, subject, key, values, gain)

    def _free(self, setup: LlamaConfig, subject: str, key: str, **values: int) -> None:
        """Keep a setup that takes clearly less than the best so far, which it becomes."""
        fit = self.fitter.sized(setup)
        if fit is not None and (freed := self.best.needed_bytes - fit.needed_bytes) > _MUCH_BYTES:
            self._keep(fit, "wastes", subject, key, freed=format_bytes(freed), **values)

    def _cells(self) -> None:
        """Find a cache beyond the training context, of which llama-server gives a slot nothing."""
        trained, setup = self.fitter.file.n_ctx_train or 0, self.best.setup
        is_other = _LONGER.search(self.line.model) and not _LONGER.search(self.target.model)
        is_stretched = is_other or self.line.last("--override-kv")
        if 0 < trained < _slot(self.best) and not is_stretched:
            capped = replace(setup, n_ctx=trained * setup.n_streams)
            self._free(capped, f"-c {self.best.context.n_ctx}", "beyond_training", trained=trained)

    def _attention(self) -> None:
        """Find full caches of a model without windows, and what flash attention would free."""
        setup = self.best.setup
        if setup.swa_full and self.best.context.swa_cells is None:
            self._note("idle", "--swa-full", "no_windows")
        if setup.flash_attn == "off":
            self._free(replace(setup, flash_attn="auto"), "-fa off", "flash_attn")

    def _remedies(self) -> None:
        """Find the cheapest change with which a command fits that does not."""
        if self.best.is_enough:
            return
        start = self.best
        changes = what_helps(self.fitter, start, self.fitter.longest(start))
        better = next((each.setup for each in changes if each.setup is not None and each.fits), None)
        if better is not None:
            fit, subject = self.fitter.fit(better), " ".join(changed_flags(better, start.setup))
            left, n = format_bytes(fit.left_bytes), format_length(_slot(fit))
            self._keep(fit, "fits", subject, "fits_with", left=left, speed=_speed(self.speed(fit)), n_ctx=n)
        elif (moved := self._unplaced(start.setup)) is not None and moved.is_enough:
            self.best = moved

    def _unplaced(self, setup: LlamaConfig) -> Fit | None:
        """Return the fit with the least in main memory, where the command places tensors; None if it cannot be had."""
        buffers = [override.rpartition("=")[2] for override in setup.override_tensor]
        budget = self.fitter.budget
        if not budget.on_gpu or not all(each.startswith("CPU") for each in buffers):
            return None
        whole = self.fitter.sized(replace(setup, **_PLACES))
        if whole is None or whole.is_enough:
            return whole
        return smallest_split(self.fitter, whole)

    def _slots(self) -> None:
        setup, n_ctx = self.best.setup, self.best.context.n_ctx
        if setup.n_seq_max > 1 and not setup.kv_unified:
            each = n_ctx // setup.n_seq_max
            self._note("divides", f"-np {setup.n_seq_max}", "context_per_slot", n_ctx=n_ctx, each=each)
        if self.line.value("--parallel") in ("", "-1"):
            self._free(replace(setup, n_seq_max=1, kv_unified=False), "-np 1", "auto_slots")

    def _cache(self) -> None:
        """Find a quantized cache where a finer one fits as well, and one that a GPU has no kernel for."""
        given = self.best.setup.type_k, self.best.setup.type_v
        was, is_decoded = self._cache_loss(given), self.best.placement.decodes_cache
        other = [
            each for each in ("f16", "q8_0", "q4_0") if not is_decoded or self._cache_loss((each, each)) < was
        ]
        found = next(filter(None, (self._tried(type_k=each, type_v=each) for each in other)), None)
        if found is None or (
            is_decoded and found.placement.is_split
        ):  # where experts or layers gain more by the room
            return
        type_ = found.setup.type_k
        now, loss = (format_number(each, 2) for each in (self._cache_loss((type_, type_)), was))
        kind: Kind = "wastes" if is_decoded else "bites"
        key = "cache_without_need" if is_decoded else "not_decoded"
        self._keep(found, kind, f"-ctk {given[0]} -ctv {given[1]}", key, type=type_, now=now, was=loss)
        if not is_decoded:
            self.compared = found

    def _cache_loss(self, types: tuple[str, str]) -> float:
        return expected_cache_loss(self.target.model, self.fitter.file.architecture, types).value

    def _batch(self) -> None:
        """Find a batch that copies experts to a GPU more often than it needs to."""
        setup, file = self.best.setup, self.fitter.file
        if not file.n_expert or not self._copies_experts or setup.n_ubatch >= LARGE_UBATCH:
            return
        larger = {"n_ubatch": LARGE_UBATCH, "n_batch": max(LARGE_UBATCH, setup.n_batch)}
        before = self._prompt_ms(self.best)
        for found in (
            self._tried(**larger),
            self._unplaced(replace(setup, **larger)),
            self._tried(**larger, type_k="q8_0", type_v="q8_0"),
        ):
            after = None if found is None else self._prompt_ms(found)
            if found is None or not found.is_enough or before is None or after is None:
                continue
            if before > _CLEAR_GAIN * after and (self._gain(found, self.compared) or 1.0) * _CLEAR_GAIN > 1:
                subject, gain = " ".join(changed_flags(found.setup, setup)), before / after
                was, ratio = f"-ub {setup.n_ubatch}", f"{gain:.1f}"
                self._keep(found, "gains", subject, "small_ubatch", gain=gain, was=was, ratio=ratio)
                return

    @property
    def _copies_experts(self) -> bool:
        return self.best.placement.is_split and not self.fitter.budget.is_unified

    def _prompt_ms(self, fit: Fit) -> float | None:
        curves = expected_curves(fit.placement, self.runs)
        known = curves[0].prefill_ms if curves else ()
        return interpolated(known, _PROMPT).value if known else None

    def _placement(self) -> None:
        """Find less in main memory than the command has there."""
        setup = self.best.setup
        if not setup.places_tensors:
            return
        found = self._unplaced(setup)
        is_unified = self.fitter.budget.is_unified
        if is_unified and found is not None and (longest := self.fitter.longest(found)):
            found = self.fitter.sized(replace(found.setup, n_ctx=min(longest, found.context.n_ctx)))
        if found is None or not found.is_enough or (self._gain(found, self.best) or 0) < _CLEAR_GAIN:
            return
        key = "experts_in_main_memory" if is_unified else "unused_room"
        subject = " ".join(changed_flags(found.setup, setup, (*_PLACES, "n_ctx")))
        left_out = " ".join(changed_flags(setup, found.setup, _PLACES))
        n, gain = min(_slot(found), _slot(self.compared)), self._gain(found, self.compared)
        now, was = (_speed(self.speed(fit, n)) for fit in (found, self.compared))
        self._keep(
            found,
            "gains",
            subject or f"without {left_out}",
            key,
            gain=gain,
            now=now,
            was=was,
            n_ctx=format_length(n),
        )

    def _room(self) -> None:
        """Find the context that fits too, where all is on GPUs and a part of them stays unused."""
        n_ctx, trained = self.best.context.n_ctx, self.fitter.file.n_ctx_train or 0
        if self._has_host_part() or n_ctx >= trained or self.line.last("--ctx-size") is None:
            return
        longest = min(self.fitter.longest_by_line(self.best), trained * self.best.setup.n_streams)
        if longest >= _MUCH_LONGER * n_ctx:
            of = "this" if self.best is self.fit else "the better command"
            self._note("spares", f"-c {longest}", "unused_context", command=of)

    def _threads(self) -> None:
        n_cores, threads = default_threads(), self.best.setup.threads or 0
        if self.fitter.budget.is_here and threads > n_cores and self._has_host_part():
            self._note("bites", f"-t {threads}", "threads", n_cores=n_cores)

    def _has_host_part(self) -> bool:
        return not self.fitter.budget.on_gpu or self.best.placement.is_split

    def _prompt_cache(self) -> None:
        """Find a prompt cache that may outgrow the main memory that is known to be left."""
        given, host = self.line.value("--cache-ram"), self.best.devices[-1]
        if given == "0" or host.device != HOST_DEVICE or host.left_bytes is None or not self.knows_host:
            return
        limit_bytes = int(given) * MIB if given.isdecimal() else CACHE_RAM_BYTES
        if given == "-1" or host.left_bytes < _LITTLE * limit_bytes:
            left_bytes = max(0, host.left_bytes)
            limit, left = "all of it" if given == "-1" else format_bytes(limit_bytes), format_bytes(left_bytes)
            self._note("bites", f"-cram {left_bytes // GIB * 1024}", "prompt_cache", limit=limit, left=left)


def _slot(fit: Fit) -> int:
    """Return the context of one slot."""
    return fit.context.n_ctx // fit.setup.n_streams


def _speed(speed: Expected | None) -> str:
    """Return `~24 tok/s`, or `?` for an unknown one."""
    return "?" if speed is None else f"~{format_number(speed.value, 2)} tok/s"
