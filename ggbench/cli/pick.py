"""`ggbench pick`: the quant and the KV cache to run, why, and the commands that run it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import click
import msgspec.structs

from ggbench.commands.budget_options import BudgetOptions, budget_options, dry_allocator, find_draft
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.downloads import reading_headers, reading_notice
from ggbench.commands.load_options import kv_list_options, load_options_but_cache
from ggbench.commands.options import (
    TOKENS,
    HubOptions,
    as_record,
    model_argument,
    no_measure_option,
    offline_option,
    option,
    output_options,
)
from ggbench.commands.output import Output, plan_exit_code
from ggbench.decisions.pick.needs import Needs, Preference, parse_workload
from ggbench.errors import DoesNotFit, ExitCode, UsageError
from ggbench.text import in_words
from ggbench.units import KV_CELLS, counted, parse_duration

if TYPE_CHECKING:
    from ggbench.decisions.pick.candidates import PickRequest
    from ggbench.decisions.pick.models import PickedModel
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.decisions.pick.run_commands import RunCommands
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.models.reference import ModelRef
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.sizing.dry_allocator import DryAllocator
    from ggbench.sizing.plan_record import Budget


_CACHES = "f16,q8_0,q4_0"


def _needs_of(
    workload: str,
    need_ctx: int | None,
    n_ctx: int | None,
    min_speed: float | None,
    max_loss: float | None,
    prefer: Preference | None,
) -> Callable[[int], Needs]:
    """Return the needs of a number of users, who share `n_ctx` equally. Raises UsageError for two contexts."""
    if n_ctx is not None and need_ctx is not None:
        raise UsageError("--need-ctx is the context of each user, --n-ctx that of all", "omit one of them")

    def of_users(n_slots: int) -> Needs:
        each = need_ctx if n_ctx is None else n_ctx // n_slots
        return Needs(parse_workload(workload), each, min_speed, max_loss, prefer, n_slots).fitting()

    return of_users


_need_options = as_record(
    "needs_of",
    _needs_of,
    ("workload", "need_ctx", "n_ctx", "min_speed", "max_loss", "prefer"),
    option(
        "--workload",
        "chat, agent, documents, longest or IN+OUT@DEPTH. chat: 512 tokens in, 300 out at depth 4k; agent:"
        " 16k in, 800 out at depth 48k, n_ctx 128k; documents: 30k in, 500 out; longest: longest context at 15 tok/s.",
        metavar="NAME",
        default="chat",
    ),
    option(
        "--need-ctx",
        "Context that each user needs, e.g. 32k. Default: the workload's, whose turns are shortened to fit less.",
        TOKENS,
    ),
    option(
        "-c --n-ctx",
        "Context of all users, as llama-server's -c. With -np N each needs an Nth of it.",
        TOKENS,
    ),
    option("--min-speed", "Minimum decode speed in tokens/s.", float, metavar="TOK_S"),
    option(
        "--max-loss",
        "Maximum loss in nats of KL divergence. Of weights and KV cache together.",
        float,
        metavar="NATS",
    ),
    option(
        "--prefer",
        "By balanced, quality, speed or context. Default: balanced; context for --workload longest.",
        click.Choice(get_args(Preference)),
        metavar="HOW",
    ),
)


_FORMS = {"sh": "llama_server", "modelfile": "modelfile", "preset": "preset", "llama-swap": "llama_swap"}
"""What --as prints, by the field of `RunCommands`."""


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench pick qwen2.5-14b --gpu rtx-3060 --need-ctx 16k
    ggbench pick ~/models --workload agent --min-speed 15
    ggbench pick --family qwen3 --gpu rtx-4090 --prefer speed
    """,
)
@model_argument(required=False)
@click.argument("quants", nargs=-1)
@_need_options
@option(
    "--family families",
    "Choose among a family, e.g. qwen3.6. In the catalog, dense models and mixtures; may be repeated.",
    metavar="NAME",
    multiple=True,
)
@option(
    "--measure measures",
    "Time the pick and alternatives, and pick again. At the depth that decides; twins stand for files not here.",
    is_flag=True,
)
@option("--within", "Start no --measure after this time. Default: 5m.", metavar="TIME")
@option(
    "--as form",
    "Print only sh, modelfile, preset or llama-swap. llama-server's command, Ollama's Modelfile, a section for"
    " llama-server's --models-preset, or llama-swap's configuration.",
    click.Choice([*_FORMS]),
    metavar="FORM",
)
@budget_options
@no_measure_option
@kv_list_options(_CACHES)
@load_options_but_cache
@offline_option
@output_options
def command(
    model: str | None,
    quants: tuple[str, ...],
    needs_of: Callable[[int], Needs],
    families: tuple[str, ...],
    measures: bool,
    within: str | None,
    form: str | None,
    memory: BudgetOptions,
    no_measure: bool,
    kv_types: tuple[tuple[str, str], ...],
    setup: LlamaConfig,
    hub: HubOptions,
    output: Output,
) -> None:
    """Recommend a quant, a KV cache and a placement for MODEL, and print the command that runs it.

    Without QUANTS, all of the repo or folder are tried; without MODEL, the models on this disk are compared. Nothing is
    measured without --measure, and only headers are downloaded. Exit code 3: nothing certainly meets the needs.

    Of a catalog id, the usual quants are tried, with q4_k_s and iq4_xs if its repo is known to have them: name them, or
    the repo, to try them anyway. Several ids of the catalog are compared. Each quant is sized with each KV cache; what
    does not fit on the GPUs also with the experts of the first layers, or else the first layers, in main memory. Speeds
    are, in this order: measured, forecast, scaled from this machine's other runs, or estimated from others' llama-bench
    on such devices. Losses come from a quality run, else from what is published of the model, else (~) of its type.
    --why prints the rules of the choice.

    The exit code is 3 also if the model was trained for less context: it is then planned for all of that. If nothing
    qualifies, pick shows the nearest miss and single changes that would make it qualify.

    With -np N, N users share the machine: --need-ctx is of each, --n-ctx and memory of all, speeds are what each gets.
    Otherwise the llama-server command uses -np 1: the default four slots share -c but enlarge sliding-window caches
    beyond the plan.
    """
    _refuse_to_measure(memory, within, measures=measures)
    needs = needs_of(setup.n_seq_max)
    if model is not None and families:
        raise UsageError("MODEL and --family exclude each other", "omit one of them")
    several, quants = _split_models(model, quants)
    ref = _parsed(model, quants, several)
    memory = memory.of_model(ref, setup, hub)
    budget = memory.budget(setup, measures=measures or not no_measure)
    draft = find_draft(memory.draft, setup, hub)
    budget = msgspec.structs.replace(budget, draft=draft and draft.to_run)
    with _allocator(setup, budget, draft) as allocator:  # started first, as its worker takes a while
        from ggbench.decisions.pick.candidates import PickRequest, caches_of
        from ggbench.models.targets import repo_read

        planned: tuple[Target, ...] = ()
        if ref is not None:
            planned, models = _of_model(ref, hub, output)
        else:
            models = _of_several(several, families, quants)
        request = PickRequest(
            needs, budget, setup, caches_of(kv_types, setup, on_gpu=budget.on_gpu), memory.given
        )
        pick = _pick(models, request, allocator)
    if measures:
        pick = _measured(pick, models, request, draft, parse_duration(within or "5m"), hub, output)
    _show(pick, request, output, form)
    if (read := repo_read(planned)) is not None:
        output.notice(reading_notice(*read))
    raise click.exceptions.Exit(_exit_code(pick, needs))


def _refuse_to_measure(memory: BudgetOptions, within: str | None, *, measures: bool) -> None:
    """Raise UsageError for --measure on a described machine, and for --within without it."""
    if measures and memory.is_described:
        raise UsageError("--measure works only on this machine", "omit --gpu, --vram and --ram")
    if within is not None and not measures:
        raise UsageError("--within needs --measure", "add --measure, or omit --within")


def _of_model(
    ref: ModelRef, hub: HubOptions, output: Output
) -> tuple[tuple[Target, ...], tuple[PickedModel, ...]]:
    from ggbench.decisions.pick.models import of_model

    with reading_headers(output) as on_progress:
        planned, models = of_model(ref, hub.access(), on_progress)
    n_twins = len(planned) - sum(len(each.variants) for each in models)
    if n_twins:
        output.notice(f"{counted(n_twins, 'twin')} left out: random weights; name the file to plan it")
    return planned, models


def _of_several(
    several: tuple[str, ...], families: tuple[str, ...], quants: tuple[str, ...]
) -> tuple[PickedModel, ...]:
    """Return the models of the catalog with these ids or of these families, or without any those on this disk."""
    from ggbench.decisions.pick.models import of_catalog, of_families, on_disk

    if families:
        return of_families(families, quants)
    return of_catalog(several, quants) if several else on_disk(quants)


def _exit_code(pick: Pick, needs: Needs) -> ExitCode:
    chosen = pick.recommended
    misses = chosen is None or not chosen.meets or needs.exceeds(chosen.candidate.row.n_ctx_train)
    return plan_exit_code([each.candidate.row for each in pick.checked], misses=misses)


def _split_models(model: str | None, quants: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids, or ID:QUANT, of the catalog's models that are compared, none for a single MODEL, and the QUANTS.

    Raises UsageError if MODEL is not in the catalog and another one is.
    """
    from ggbench.models.catalog import load_catalog

    ids = {each.id for each in load_catalog()} if quants else set[str]()
    others = [word for word in quants if word.partition(":")[0].lower() in ids]
    if model is None or not others:
        return (), quants
    if model.partition(":")[0].lower() not in ids:
        what = f"{model} is not in the catalog, so it is not compared with {others[0]}"
        raise UsageError(what, "name ids of the catalog; without any, pick compares the models on this disk")
    named = dict.fromkeys(word.lower() for word in (model, *others))
    return tuple(named), tuple(word for word in quants if word not in others)


def _parsed(model: str | None, quants: tuple[str, ...], several: tuple[str, ...]) -> ModelRef | None:
    from ggbench.models.reference import parse_model

    return None if model is None or several else parse_model(model, *quants)


def _allocator(setup: LlamaConfig, budget: Budget, draft: Target | None) -> DryAllocator:
    from ggbench.engines.contract import launch_engine

    return dry_allocator(launch_engine(setup), setup, budget, draft)


def _measured(
    pick: Pick,
    models: tuple[PickedModel, ...],
    request: PickRequest,
    draft: Target | None,
    within_s: float,
    hub: HubOptions,
    output: Output,
) -> Pick:
    """Measure the speeds that matter and pick again, until all are known or the time is up."""
    from ggbench.commands.measuring import measure
    from ggbench.commands.options import MeasureRequest
    from ggbench.decisions.pick.candidates import next_to_measure, variant_of
    from ggbench.decisions.pick.sentences import candidate_name
    from ggbench.models.reference import parse_model

    end, tried = time.monotonic() + within_s, set[tuple[str, ...]]()
    while (candidate := next_to_measure(pick, tried)) is not None:
        tried.add(candidate.name)
        variant = variant_of(candidate, models)
        if variant.scaled_from:
            output.notice(
                f"{candidate_name(candidate)} is not timed: a twin of its mixture needs the file's header"
            )
            continue
        if time.monotonic() >= end:
            output.notice(f"--within {within_s:g}s is over; some speeds are still unknown")
            break
        output.notice(f"timing {candidate_name(candidate)}")
        job = _job(candidate, request, hub)
        ref = parse_model(*job.target.named)
        if measure([job], MeasureRequest(ref, candidate.setup, hub, output), is_sweep=True).is_cancelled:
            break
        with _allocator(request.setup, request.budget, draft) as allocator:
            pick = _pick(models, request, allocator)
    return pick


def _job(candidate: Candidate, request: PickRequest, hub: HubOptions) -> Job:
    """Return a decode of the answer at its depth if the file is here, or else a forecast from twins."""
    from ggbench.models.reference import parse_model
    from ggbench.models.targets import resolve
    from ggbench.runs.experiment import Job, experiment_of

    workload, file = request.needs.workload, candidate.to_run
    setup = candidate.setup.undrafted()  # speeds do not include drafting
    if file is not None and file.is_here and file.paths:
        from ggbench.experiments.decode.record import DecodeSettings

        (target,) = resolve(parse_model(str(file.paths[0])), hub=hub.access())
        n_slots = request.needs.n_slots
        depth = workload.depth_in(candidate.n_ctx // n_slots) + workload.n_prompt
        if n_slots > 1:
            from ggbench.experiments.speed.record import SpeedSettings

            settings = SpeedSettings((depth,), workload.n_gen, (n_slots,))
            setup = msgspec.structs.replace(setup, n_ctx=None, n_seq_max=1)
            return Job(experiment_of("speed"), target, setup, settings)
        return Job(experiment_of("decode"), target, setup, DecodeSettings(workload.n_gen, depths=(depth,)))
    from ggbench.experiments.forecast.record import ForecastSettings

    ref = parse_model(candidate.row.model, candidate.quant)
    (target,) = resolve(ref.require_gguf().as_twin(), hub=hub.access())
    return Job(
        experiment_of("forecast"),
        target,
        msgspec.structs.replace(setup, n_ctx=None, n_seq_max=1, kv_unified=False),
        ForecastSettings(),
    )


def _pick(models: tuple[PickedModel, ...], request: PickRequest, allocator: DryAllocator) -> Pick:
    """Pick using stored results, or none if the store cannot be read."""
    from ggbench.decisions.pick.candidates import pick
    from ggbench.errors import StoreError
    from ggbench.runs.store.database import Store

    try:
        with Store.open() as store:
            return pick(models, request, allocator, store)
    except StoreError:
        return pick(models, request, allocator, None)


def _show(pick: Pick, request: PickRequest, output: Output, form: str | None) -> None:
    """Print the pick; raises DoesNotFit, with how it would, if there is nothing to run."""
    from ggbench.decisions.pick.sentences import headline, is_runnable
    from ggbench.decisions.pick.show import PICK, commands_of, pick_answer, pick_record

    best = pick.best
    commands = None if best is None or not is_runnable(pick) else commands_of(best.candidate, request.budget)
    if output.as_json:
        output.record(PICK, pick_record(pick, request.budget, commands, request.setup))
    elif commands is not None and form is not None:
        click.echo(_in_form(commands, form))
    elif is_runnable(pick):
        output.answer(pick_answer(pick, request.budget, commands))
    else:
        if output.why:
            output.answer(pick_answer(pick, request.budget, commands))
        error = DoesNotFit(headline(pick), _remedy(pick, request))
        error.exit_code = _exit_code(pick, pick.needs)
        raise error


def _in_form(commands: RunCommands, form: str) -> str:
    """Return a configuration. Raises UsageError if the program has no setting for something planned."""
    from ggbench.show.words import say

    text: str = getattr(commands, _FORMS[form])
    if not text:
        obstacles = in_words(commands.not_in_ollama or ("such a file name",))
        raise UsageError(say("pick.no_form", form=form, obstacles=obstacles), "use --as sh")
    return text.rstrip("\n")


def _remedy(pick: Pick, request: PickRequest) -> str:
    """Return the first changes with which the nearest miss would fit, and how to find a smaller model."""
    from ggbench.show.changes import change_text
    from ggbench.show.words import say

    ways = [change_text(change) for change in pick.changes if change.fits and change.kind != "n_ctx"][:1]
    longest = 0 if pick.best is None else (pick.best.candidate.longest_n_ctx or 0) // pick.needs.n_slots
    if longest >= KV_CELLS and pick.needs.holds_turn(longest):
        ways.append(f"-c {longest // KV_CELLS * KV_CELLS}")
    enough = " or ".join(ways)
    smaller = _pick_of_family(pick, request)
    return say("pick.fits_with" if enough else "pick.smaller", changes=enough, smaller=smaller)


def _pick_of_family(pick: Pick, request: PickRequest) -> str:
    """Return the command that picks among the sizes of the model's family, on the same machine."""
    from ggbench.models.catalog import load_catalog

    models = {each.candidate.row.model.removeprefix("twin:") for each in pick.checked}
    family = next((model.family for model in load_catalog() if model.id in models), "NAME")
    options = [word for name, value in request.options for word in (f"--{name}", value)]
    return shlex.join(["ggbench", "pick", "--family", family, *options, "-c", str(pick.needs.n_ctx_slot)])
