"""`ggbench pick`: the model, the quant and the KV cache to run, why, and the commands that run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec.structs

from ggbench.commands.budget_options import (
    BudgetOptions,
    budget_options,
    find_draft,
    start_allocator,
    with_draft,
)
from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.downloads import reading_headers
from ggbench.commands.load_options import kv_list_options, load_options_but_cache
from ggbench.commands.options import (
    PATH,
    TOKENS,
    HubOptions,
    as_record,
    model_argument,
    offline_option,
    option,
    output_options,
    rare_option,
    workload_option,
)
from ggbench.commands.output import Output, plan_exit_code
from ggbench.decisions.pick.needs import Needs, Preference
from ggbench.errors import ExitCode, UsageError
from ggbench.expect.sessions import parse_session

if TYPE_CHECKING:
    from ggbench.decisions.pick.models import Competitors
    from ggbench.decisions.pick.record import Pick
    from ggbench.engines.llama.config import LlamaConfig


_CACHES = "f16,q8_0,q4_0"


def _needs_of(
    workload: str,
    need_ctx: int | None,
    n_ctx: int | None,
    min_speed: float | None,
    max_loss: float | None,
    prefer: Preference,
) -> Callable[[int], Needs]:
    """Return the needs of a number of users, who share `n_ctx` equally. Raises UsageError for two contexts."""
    if n_ctx is not None and need_ctx is not None:
        raise UsageError("--need-ctx is the context of each user, --n-ctx that of all", "omit one of them")

    def of_users(n_slots: int) -> Needs:
        each = need_ctx if n_ctx is None else n_ctx // n_slots
        return Needs(parse_session(workload), each, min_speed, max_loss, prefer, n_slots)

    return of_users


_need_options = as_record(
    "needs_of",
    _needs_of,
    ("workload", "need_ctx", "n_ctx", "min_speed", "max_loss", "prefer"),
    workload_option(default="chat"),
    option(
        "--need-ctx",
        "Context that each user needs, e.g. 32k. Default: the session's, whose turns are shortened to fit less.",
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
        "By balanced, quality, speed or context.",
        click.Choice(get_args(Preference)),
        metavar="HOW",
        default="balanced",
    ),
)


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench pick --gpu rtx-4090 --workload coding
    ggbench pick qwen2.5-14b --gpu rtx-3060 --need-ctx 16k
    ggbench pick ~/models --workload coding --min-speed 15
    """,
)
@model_argument(required=False)
@click.argument("quants", nargs=-1)
@_need_options
@option(
    "--family families",
    "Choose among a family, e.g. qwen3.5. Its current models; may be repeated.",
    metavar="NAME",
    multiple=True,
)
@option("--local", "Choose among the models on this disk.", is_flag=True)
@option(
    "--as form",
    "Print only sh, preset, llama-swap, modelfile or docker. llama-server's command, a section for its --models-preset,"
    " llama-swap's configuration, Ollama's Modelfile, or the command of Docker.",
    click.Choice(("sh", "preset", "llama-swap", "modelfile", "docker")),
    metavar="FORM",
)
@option("-o --output path", "With --as: write to FILE.", PATH, metavar="FILE")
@rare_option("--force", "Overwrite files that exist.", is_flag=True)
@budget_options
@kv_list_options(_CACHES)
@load_options_but_cache
@offline_option
@output_options
def command(
    model: str | None,
    quants: tuple[str, ...],
    needs_of: Callable[[int], Needs],
    families: tuple[str, ...],
    local: bool,
    form: str | None,
    path: Path | None,
    force: bool,
    memory: BudgetOptions,
    kv_types: tuple[tuple[str, str], ...],
    setup: LlamaConfig,
    hub: HubOptions,
    output: Output,
) -> None:
    """Recommend a model, a quant, a KV cache and a placement.

    Without MODEL, the current models of the catalog: the most capable that is comfortable, by its publisher's own
    score, with the best of the other kind, the fastest, and one with room for a long context. Nothing is measured: runs
    of decode, forecast and quality decide before any estimate. Exit code 3: nothing certainly meets the needs.

    Only headers are downloaded. Several ids of the catalog are compared, and without QUANTS all of a repo or
    folder. Of a catalog id, the usual quants are tried, with q4_k_s and iq4_xs if its repo is known to have them:
    name them, or the repo, to try them anyway. Each quant is sized with each KV cache; what does not fit on the
    GPUs also with the experts of the first layers, or else the first layers, in main memory. Speeds are, in this
    order: measured, forecast, scaled from this machine's other runs, or estimated from others' llama-bench on such
    devices. Losses come from a quality run, else from what is published of the model, else (~) of its type. The rules
    of the choice: ggbench help rules.

    The exit code is 3 also if the model was trained for less context: it is then planned for all of that. If nothing
    qualifies, pick shows the nearest miss, and single changes or another model that would do.

    With -np N, N users share the machine: --need-ctx is of each, --n-ctx and memory of all, speeds are what each gets.
    Otherwise the llama-server command uses -np 1: the default four slots share -c but enlarge sliding-window caches
    beyond the plan.
    """
    if sum((model is not None, bool(families), local)) > 1:
        raise UsageError("MODEL, --family and --local exclude each other", "give one of them")
    _check_form(form, path, output, force=force)
    from ggbench.decisions.pick.models import Competitors, of_planned, split_ids
    from ggbench.models.reference import parse_model

    needs = needs_of(setup.n_seq_max)
    several, quants = split_ids(model, quants)
    ref = None if model is None or several else parse_model(model, *quants)
    memory = memory.of_model(ref, setup, hub)
    budget = memory.budget(setup)
    draft = find_draft(memory.draft, setup, hub)
    budget = with_draft(budget, draft)
    from ggbench.commands.picking import (
        Paste,
        card_twice,
        find_substitute,
        run_pick,
        show_pick,
    )

    # the allocator is started before headers are read, as its worker takes a while
    with start_allocator(setup, budget, draft) as allocator:
        from ggbench.decisions.pick.candidates import PickRequest, caches_of
        from ggbench.models.targets import resolve_headers

        if ref is None:
            asked = _of_several(several, families, quants, local=local, is_here=budget.is_here)
        else:
            with reading_headers(output) as on_progress:
                planned = resolve_headers(ref, hub=hub.access(), on_progress=on_progress)
            asked = Competitors(of_planned(planned))
        request = PickRequest(needs, budget, setup, caches_of(kv_types, setup), memory.given)
        pick = run_pick(asked, request, allocator, output)
        instead = find_substitute(pick, request, allocator, output) if asked.models else ""
    twice = card_twice(pick, asked, request, memory, output)
    pick = msgspec.structs.replace(pick, instead=instead, twice=twice)
    show_pick(pick, request, output, Paste(form, path, force), _exit_code(pick))
    raise click.exceptions.Exit(_exit_code(pick))


def _check_form(form: str | None, path: Path | None, output: Output, *, force: bool) -> None:
    """Raises UsageError for options of `--as` without it, or with another form."""
    from ggbench.files import check_free

    if path is not None and form is None:
        raise UsageError("-o writes what --as names", "add --as sh, preset, llama-swap, modelfile or docker")
    if form is not None and (output.as_json or output.as_markdown):
        raise UsageError("--as, --json and --md each print a form of their own", "keep one of them")
    if path is not None:
        check_free(path, force=force)
    elif force:
        raise UsageError("--force overwrites the file of -o", "add -o FILE, or omit --force")


def _of_several(
    several: tuple[str, ...],
    families: tuple[str, ...],
    quants: tuple[str, ...],
    *,
    local: bool,
    is_here: bool,
) -> Competitors:
    """Return the models with these ids, on this disk, of these families, or the current ones."""
    from ggbench.decisions.pick.models import Competitors, models_here, of_catalog, of_families, on_disk

    if local:
        return Competitors(on_disk())
    if several:
        return Competitors(of_catalog(several, quants))
    return Competitors((), of_families(families), models_here() if is_here else ())


def _exit_code(pick: Pick) -> ExitCode:
    chosen = pick.recommended
    misses = chosen is None or not chosen.meets or pick.needs.exceeds(chosen.row.n_ctx_train)
    return plan_exit_code([each.row for each in pick.candidates], misses=misses)
