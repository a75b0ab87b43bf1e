"""A measurement as chosen in its dialog: its jobs, and what it takes in time, memory and downloads."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.errors import StoreError, UsageError
from ggbench.fields import options_of
from ggbench.files import replace_file
from ggbench.models.reference import parse_model
from ggbench.plugins import plugin_names
from ggbench.show import FITS_NOT
from ggbench.sizing.budget import main_memory_here
from ggbench.text import in_words
from ggbench.tui.library import Selection
from ggbench.tui.quant_rows import QuantRow, speed_from
from ggbench.units import counted, format_bytes, format_count, format_duration, format_duration_range

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment, Job
    from ggbench.runs.run import Settings
    from ggbench.runs.store.database import Store
    from ggbench.show.figures import LatencyLine
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.host import Services


EXPERIMENTS = "ggbench.experiments"


class PastRun(msgspec.Struct, frozen=True):
    """A completed run of the chosen quant."""

    run_id: int
    seconds: float
    settings: Settings

    def has_options(self, options: Settings) -> bool:
        """Return whether it was measured with these options, as far as its settings contain them."""
        kind: type = type(self.settings)
        measured = {name: getattr(self.settings, name) for name in options_of(kind)}
        return all(getattr(options, name, value) == value for name, value in measured.items())


PastRuns: TypeAlias = Mapping[str, Sequence[PastRun]]
"""Runs of a quant by experiment, newest first."""
_MOST_PAST = 20
"""Runs of each experiment among which one with the same options is looked for."""


class Choices(msgspec.Struct, frozen=True):
    """The last choices of the dialog, kept in the config folder."""

    kind: str = ""
    """The experiment; empty before the first."""
    engine: str = ""
    """Value of `--engine`; empty for ggbench's own llama.cpp."""
    texts: dict[str, dict[str, str]] = {}
    """The texts of the fields of each experiment."""
    options: dict[str, str] = {}
    """The texts of those of the Library's options (o) that are among them."""

    @classmethod
    def load(cls) -> Choices:
        """Return the stored choices; the defaults if there are none, or they cannot be read."""
        with contextlib.suppress(OSError, UsageError, ValueError, RecursionError):
            return msgspec.json.decode(paths.measure_choices_file().read_bytes(), type=cls)
        return cls()

    def save(self) -> None:
        """Store them, unless the config folder cannot be written."""
        with contextlib.suppress(OSError, UsageError):
            replace_file(paths.measure_choices_file(), msgspec.json.encode(self))


class Chosen(msgspec.Struct, frozen=True):
    """The quants to measure."""

    title: str
    """Untrusted text."""
    selection: Selection
    rows: Sequence[QuantRow]
    """Those that have a plan."""
    setup: LlamaConfig
    budget: Budget | None
    """This machine's memory; None if the rows were planned for another, or it is not read yet."""
    planned_for: str = ""
    """The other machine that the rows were planned for; empty for this one."""

    @property
    def n_runs(self) -> int:
        return sum(len(names) for _, names in self.selection)

    @property
    def n_ctx_train(self) -> int | None:
        """The least training context; None if unknown."""
        return min((row.plan.n_ctx_train for row in self.rows if row.plan.n_ctx_train), default=None)

    @property
    def download_bytes(self) -> int:
        """Bytes of the planned quants that are not on this disk."""
        return sum(row.plan.file_bytes or 0 for row in self.rows if not (row.is_here or row.is_twin))

    @property
    def has_twins(self) -> bool:
        """Whether twins can be measured in place of files that are not on this disk."""
        return any(parse_model(model).kind in ("catalog", "hub") for model, _ in self.selection)


class RunRequest(msgspec.Struct, frozen=True):
    """An experiment with its options, for all chosen quants."""

    experiment: Experiment
    options: Settings
    """A record of the experiment's `request_type`."""
    setup: LlamaConfig
    engine: str = ""
    """Value of `--engine`; empty for ggbench's own llama.cpp."""
    is_twin: bool = False
    """Whether to measure twins in place of files that are not on this disk."""
    download_bytes: int = 0
    """The download to which the user agreed."""
    is_capped: bool = False
    """Whether its n_ctx or its number of tokens was reduced to the training context."""
    notice: str = ""
    """How it differs from the plan; empty if it does not."""

    @classmethod
    def planned(
        cls,
        experiment: Experiment,
        options: Settings,
        setup: LlamaConfig,
        trained: int | None = None,
        *,
        is_n_gen_given: bool = True,
    ) -> RunRequest:
        """Return a request with the planned n_ctx if the experiment keeps it and its tokens fit; else without one.

        The n_ctx and, unless given, the number of decoded tokens are at most what the training context holds.
        """
        n_gen, over, is_capped = getattr(options, "n_gen", 0), options.n_longest - (trained or math.inf), False
        if 0 < over < n_gen and not is_n_gen_given:
            options, is_capped = replace(cast("Any", options), n_gen=n_gen - int(over)), True
        needed = whole_steps(options.n_ctx_needed or 0)
        if trained is not None and experiment.keeps_n_ctx and (setup.n_ctx or 0) > trained * setup.n_seq_max:
            setup, is_capped = replace(setup, n_ctx=trained * setup.n_seq_max), True
        own, notice = replace(setup, n_ctx=None), ""
        if experiment.keeps_n_ctx and setup.n_ctx is not None:
            if setup.n_ctx >= needed:
                own = setup
            else:
                notice = f"this needs n_ctx {format_count(needed)}; {format_count(setup.n_ctx)} was planned"
        return cls(experiment, options, own, is_capped=is_capped, notice=notice)

    @property
    def config(self) -> LlamaConfig:
        """The setup as run by the engine. Raises UsageError."""
        from ggbench.commands.measure_options import run_by

        return run_by(self.engine, self.setup) if self.engine else self.setup

    def targets(
        self, services: Services, model: str, names: Sequence[str], catalog: Catalog | None
    ) -> Sequence[Target]:
        """Return the targets of these quants. Raises like `resolve`."""
        if self.is_twin:
            return [services.find_file_or_twin(model, name, catalog) for name in names]
        return services.resolve(model, names, catalog)

    def jobs(self, found: Sequence[tuple[str, Sequence[str], Sequence[Target]]], hub: HubAccess) -> list[Job]:
        """Return the jobs for the targets found for each model and its quants. Raises GgbenchError."""
        config = self.config
        return [
            job
            for model, names, targets in found
            for job in self.experiment.jobs(self.options, parse_model(model, *names), targets, config, hub)
        ]

    def cost(self, chosen: Chosen, past: PastRuns) -> str:
        """Return the time and the memory that it takes, with the basis of the time; what is unknown is said."""
        here = f"on this machine, not on {chosen.planned_for}" if chosen.planned_for else ""
        n_runs = counted(chosen.n_runs, "quant") if chosen.n_runs > 1 else ""
        what = " ".join(filter(None, (n_runs, here)))
        # an experiment that needs only headers loads something else than the file
        memory = f" {self._memory_text(chosen)}." if self.experiment.needs_download else ""
        return f"{what}{': ' if what else ''}{self._time(chosen)}{self._latest(past)}.{memory}{self._training(chosen)}"

    def check_size(self, chosen: Chosen, *, are_tokens_given: bool) -> None:
        """Refuse given tokens beyond the training context, which a twin does not have, and more than the whole memory.
        Raises UsageError.
        """
        trained, needed = chosen.n_ctx_train, self.options.n_longest
        is_trained = are_tokens_given and any(row.plan.provenance != "twin" for row in chosen.rows)
        if is_trained and trained is not None and needed > trained:
            message = f"the model was trained for {format_count(trained)} tokens; this takes {format_count(needed)}"
            raise UsageError(message, "give fewer tokens, or none for the default")
        if self.experiment.needs_download:
            n_bytes, text = self._memory(chosen)
            budget = self._budget(chosen)
            memory_bytes = n_bytes if budget is None else budget.memory_bytes
            if n_bytes > memory_bytes:
                hint = "measure fewer tokens or a smaller quant"
                raise UsageError(f"{text}, of {format_bytes(memory_bytes)}", hint)

    def _training(self, chosen: Chosen) -> str:
        trained = chosen.n_ctx_train
        if trained is not None and self.options.n_longest > trained:
            return f" ! The model was trained for {format_count(trained)} tokens."
        return f" Capped at the training context of {format_count(trained)}." if self.is_capped else ""

    def _time(self, chosen: Chosen) -> str:
        decodes, within_s = self.options.decodes, self.options.within_s
        known = list(_known_times(chosen, decodes)) if decodes and chosen.budget is not None else []
        if not known:
            if within_s is None:
                return "time unknown"
            return f"about {format_duration(within_s * chosen.n_runs)} to measure"
        bases = in_words(list(dict.fromkeys(basis or "the memory bandwidth" for *_, basis in known)))
        least_s, most_s = (sum(each) for each in list(zip(*known, strict=True))[:2])
        prompts = ", and the prompts" if max(start for start, _ in decodes) > 512 else ""
        taken = format_duration_range(least_s, math.inf if len(known) < chosen.n_runs else most_s)
        return f"{taken} (from {bases}){prompts}"

    def _latest(self, past: PastRuns) -> str:
        runs = past.get(self.experiment.kind, ())
        if not runs:
            return ""
        same = next((run for run in runs if run.has_options(self.options)), None)
        run, other = same or runs[0], "" if same else " with other options"
        return f"; run {run.run_id} took {format_duration(run.seconds)}{other}"

    def _memory_text(self, chosen: Chosen) -> str:
        """Say how much memory it takes of what is free; ! if it leaves less than the reserve, ✗ if it does not fit."""
        n_bytes, text = self._memory(chosen)
        budget = self._budget(chosen)
        if budget is None:
            return text
        mark = FITS_NOT if n_bytes > budget.memory_bytes else "!" if n_bytes > budget.usable_bytes else ""
        return f"{mark} {text}, of {format_bytes(budget.usable_bytes)} usable".lstrip()

    def _budget(self, chosen: Chosen) -> Budget | None:
        """Return the memory it may use; None if unknown: on GPUs, if the limit or reserve is not the planned one."""
        limit_bytes, reserve_bytes = self.setup.memory_limit_bytes, getattr(self.options, "reserve_bytes", None)
        is_planned = limit_bytes == chosen.setup.memory_limit_bytes and reserve_bytes is None
        if chosen.budget is None or is_planned:
            return chosen.budget
        return None if chosen.budget.on_gpu else main_memory_here(limit_bytes, reserve_bytes)

    def _memory(self, chosen: Chosen) -> tuple[int, str]:
        """Return the bytes that the largest quant takes, and what for."""
        needed = self.options.n_ctx_needed
        n_ctx = self.setup.n_ctx or (whole_steps(needed) if needed else None)
        if n_ctx is None:
            n_bytes = max((row.plan.weight_bytes or 0 for row in chosen.rows), default=0)
            return n_bytes, f"{format_bytes(n_bytes or None)} for the weights, and a KV cache"
        n_bytes = max((row.needed_bytes(n_ctx) or 0 for row in chosen.rows), default=0)
        return n_bytes, f"{format_bytes(n_bytes or None)} of memory at n_ctx {format_count(n_ctx)}"


def past_runs(store: Store, chosen: Chosen) -> PastRuns:
    """Return the latest completed runs of the only chosen quant. Raises StoreError."""
    from ggbench.runs.stored import head_of

    ((model, (name,)),) = chosen.selection
    quant, found = chosen.rows[0].plan.quant if chosen.rows else name, dict[str, list[PastRun]]()
    for kind in plugin_names(EXPERIMENTS, "measure"):
        for run in store.list_runs(kind=kind, model=model, quant=quant, state=Outcome.COMPLETED, limit=_MOST_PAST):
            if run.finished_at and not run.is_imported:
                with contextlib.suppress(ValueError, TypeError, StoreError):  # a damaged run has no duration
                    took = datetime.fromisoformat(run.finished_at) - datetime.fromisoformat(run.started_at)
                    past = PastRun(run.run_id, took.total_seconds(), head_of(run).settings)
                    found.setdefault(kind, []).append(past)
    return found


def _seconds(line: LatencyLine, decodes: Sequence[tuple[int, int]]) -> float:
    return sum(n * float(line.ms(start + n / 2)) for start, n in decodes) / 1e3


def _known_times(chosen: Chosen, decodes: Sequence[tuple[int, int]]) -> Iterator[tuple[float, float, str]]:
    """Yield the fewest and most seconds of the decodes of each quant with a known speed, and what that is from.

    From the bound's line, raised to the speed expected at n_ctx with its 95 % interval if there is one. By the
    bandwidth alone, whose basis is empty, the most is at the least shares of it.
    """
    from ggbench.show.figures import LatencyLine  # imports numpy

    for row in chosen.rows:
        limit, expected = row.plan.limit, row.plan.expected
        if limit is None:
            continue
        line = LatencyLine(limit.w_tokens_per_ms, limit.b_ms)
        seconds = _seconds(line, decodes)
        if expected is None or row.plan.n_ctx is None:
            on_gpu = chosen.budget is not None and chosen.budget.on_gpu
            yield seconds, _seconds(LatencyLine(*limit.at_least_shares(on_gpu=on_gpu)), decodes), ""
            continue
        slow, fast = expected.tok_s_ci95
        bound = 1e3 / float(line.ms(row.plan.n_ctx))
        basis = speed_from(expected.speed_basis, expected.basis)
        yield seconds * bound / fast, seconds * bound / slow if slow > 0 else math.inf, basis
