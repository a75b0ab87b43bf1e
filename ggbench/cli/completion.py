"""Shell completion of models, quants, runs and GPUs.

To be fast, it sends no network request and reads no header.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from ggbench.errors import GgbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from ggbench.models.catalog import CatalogModel
    from ggbench.models.local_files import LocalVariant


_Names: TypeAlias = "Iterable[tuple[str, str]]"
"""Names with short descriptions, which bash does not show."""

_MOST_RUNS = 500
_TWINS = "twin:"
_PATHS = ("/", "./", "../", "~")


def offer(command: click.Command) -> None:
    """Add completion to the parameters of a command and its subcommands, by parameter name."""
    for param in command.params:
        names = (_ARGUMENTS if isinstance(param, click.Argument) else _OPTIONS).get(param.name or "")
        if names is not None:
            param.type = _Named(param.type, names)
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        offer(part)


class _Named(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Wraps another parameter type, adding completion."""

    def __init__(self, values: click.ParamType, names: Callable[[click.Context], _Names]) -> None:  # type: ignore[type-arg]
        self.name, self._values, self._names = values.name, values, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        return self._values.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the matching names not given yet, else files; nothing if the names cannot be read."""
        if incomplete.startswith(_PATHS):
            return [CompletionItem(incomplete, type="file")]
        given = ctx.params.get(param.name or "") or ()
        taken = set(map(str, given)) if isinstance(given, tuple) else set()
        try:
            found = dict(self._names(ctx))
        except (GgbenchError, OSError, ValueError):
            return []
        items = [
            CompletionItem(name, help=about)
            for name, about in found.items()
            if name.lower().startswith(incomplete.lower()) and name not in taken and _is_word(name)
        ]
        return items or [CompletionItem(incomplete, type="file")]


def _is_word(name: str) -> bool:
    """Return whether the name needs no quoting in a shell."""
    return name.isprintable() and not set(name) & set(" '\"\\,;&|<>()$`*?[]{}!#")


def _models(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    from ggbench.models.added_places import remembered_servers
    from ggbench.models.catalog import load_catalog

    catalog = load_catalog()
    yield from ((model.id, model.title) for model in catalog if model.repo)
    yield from ((f"{_TWINS}{model.id}", f"twin of {model.title}") for model in catalog)
    yield from ((repo, "downloaded") for repo, _ in _snapshots())
    yield from ((url, "server") for url in remembered_servers())


def _quants(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the quants of the given model, from the names of its files or from the catalog."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.local_files import local_variants, variants_in
    from ggbench.models.reference import parse_model

    ref = parse_model(str(ctx.params.get("model") or ""))
    files: list[LocalVariant] = []
    model: CatalogModel | None = None
    match ref.kind:
        case "path":
            files += local_variants(ref.path)
        case "catalog" | "twin":
            model = load_catalog().model(ref.name)
        case "hub" | "published_twin":
            files += [each for repo, folder in _snapshots() if repo == ref.name for each in variants_in(folder)[0]]
            model = load_catalog().of_repo(ref.name)
    yield from ((each.quant, "on this disk") for each in files if each.quant)
    yield from ((quant, "") for quant in (model.quants if model else ()))


def _runs(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    from ggbench.runs.store.health import recent_runs
    from ggbench.text import sanitize

    for run in recent_runs(_MOST_RUNS):
        yield str(run.run_id), sanitize(f"{run.kind} {run.model} {run.quant}")


def _measured_models(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    from ggbench.runs.store.health import recent_runs

    return ((run.model, "measured") for run in recent_runs(_MOST_RUNS))


def _gpus(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    from ggbench.machine.known_devices import known_devices

    return ((gpu.id, gpu.name) for gpu in known_devices())


def _help_topics(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    from ggbench.cli.help import TOPICS, summary
    from ggbench.cli.main import COMMANDS

    yield from COMMANDS.items()
    yield from ((name, summary(name)) for name in TOPICS)


def _snapshots() -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each downloaded repo."""
    from ggbench.hub.repo_records import find_snapshots
    from ggbench.models.model_stores import find_model_stores

    for store in find_model_stores():
        if store.layout == "hub" and store.finds_repos:
            yield from find_snapshots(store.root)


_ARGUMENTS: dict[str, Callable[[click.Context], _Names]] = {
    "model": _models,
    "quants": _quants,
    "run_id": _runs,
    "run_ids": _runs,
    "named": _runs,
    "words": _help_topics,
}
_OPTIONS: dict[str, Callable[[click.Context], _Names]] = {"model": _measured_models, "gpu": _gpus}


class _Bash(BashComplete):
    """Bash splits words at colons and replaces only the text after one, so completions must omit `twin:`."""

    source_template: ClassVar[str] = BashComplete.source_template.replace(
        "COMP_CWORD=$COMP_CWORD",
        'COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS"',
    )
    _n_fixed = 0
    """Length of the part of the word that bash keeps."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        if ":" in os.environ.get("COMP_BREAKS", ":"):
            self._n_fixed = incomplete.rfind(":") + 1
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self._n_fixed :]}"


add_completion_class(_Bash)
