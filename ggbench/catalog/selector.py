"""What a person means by MODEL and QUANT: from their words to the files, or the twins, to measure.

A twin takes as long to make as it is large: a `Target` only says what to make, and `materialize` makes it at its turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ggbench import paths
from ggbench.catalog.local_files import LocalVariant, local_variants
from ggbench.catalog.models import HUB_REPO, Catalog, CatalogModel, load_catalog
from ggbench.errors import BadFile, GgbenchError, UnknownName, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import ftype_by_name, quant_label
from ggbench.plain import plain
from ggbench.units import format_bytes

ARTICLE_QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
"""What a twin is made in when no quant is named: the eight of the article, in its order."""

_NO_QUANT = "unknown"
_FORMS = "MODEL is a catalog id, org/name or hf:org/name, a path, synth:<id> or twin:<org/name>"


@dataclass(frozen=True, slots=True)
class CatalogRef:
    """A model of the catalog by its id, `qwen1.5-7b`."""

    id: str
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class HubRef:
    """A repo of the Hub, `org/name` or `hf:org/name`."""

    repo: str
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class PathRef:
    """A GGUF file, or a folder with some in it."""

    path: Path
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class SynthRef:
    """A twin of a catalog model, `synth:qwen1.5-7b`."""

    id: str
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class TwinRef:
    """A twin of a published file from its real header, `twin:org/name`."""

    repo: str
    quant: str | None = None


ModelRef = CatalogRef | HubRef | PathRef | SynthRef | TwinRef


@dataclass(frozen=True, slots=True)
class Target:
    """One quant of one model to measure."""

    model: str
    """MODEL as the person wrote it, a `:QUANT` at its end left out; printable."""
    quant: str
    """In lower case: of the file's name, else of its header, else `unknown`."""
    provenance: Literal["file", "twin", "hub"]
    """What the weights are; a file whose header says that it is a twin is one."""
    path: Path | None
    """The file, or the first shard; None for a twin, which `materialize` makes or finds in the cache."""
    file_bytes: int | None = None
    """Over all shards; None for a twin."""
    synth_of: CatalogModel | None = None
    """The model that a twin is made of."""
    twins_dir: Path | None = None
    """Where twins are kept."""


def parse_model(text: str) -> ModelRef:
    """MODEL or MODEL:QUANT taken apart, by the first of these rules that holds.

    1. What exists on this disk is a path: a folder goes before a catalog id and a Hub repo of the same spelling, and a
       name with a colon in it before the same name with a QUANT.
    2. `synth:`, `hf:` and `twin:` in front, in any case, say what it is.
    3. With a `:QUANT` at its end, which has no slash, the rest is looked at by these rules; but what rule 4 takes for a
       path and is not there keeps a colon before `.gguf`, as in `/models/a:b.gguf`.
    4. What begins with `/`, `./`, `../` or `~`, ends in `.gguf`, or has more than one slash is a path.
    5. With one slash it is a Hub repo, `org/name`; with none a catalog id.

    `hf:org/name` and `./name` leave no doubt.
    Raises UsageError for what is none of them.
    """
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} names no model", _FORMS)
    if _exists(text):
        return PathRef(_path(text))
    prefix, _, rest = text.partition(":")
    if prefix.lower() in ("synth", "hf", "twin"):
        name, quant = _split_quant(rest, rest.partition(":"))
        if prefix.lower() == "synth":
            if not name or "/" in name:
                raise UsageError(f"{text!r} is not synth:<id>", "see the ids with: ggbench models")
            return SynthRef(name.lower(), quant)
        if not HUB_REPO.fullmatch(name):
            raise UsageError(f"{text!r} is not {prefix.lower()}:org/name", _FORMS)
        return HubRef(name, quant) if prefix.lower() == "hf" else TwinRef(name, quant)
    head, colon, tail = text.rpartition(":")
    if colon and "/" not in tail and (_exists(head) or (_looks_like_path(head) and not tail.lower().endswith(".gguf"))):
        return PathRef(_path(head), _split_quant(text, (head, colon, tail))[1])
    name, quant = _split_quant(text, text.partition(":"))
    if quant is None and _looks_like_path(text):
        return PathRef(_path(text))
    if HUB_REPO.fullmatch(name):
        return HubRef(name, quant)
    return PathRef(_path(text)) if "/" in text else CatalogRef(name.lower(), quant)


def resolve(
    model: str, quants: Sequence[str] = (), *, twins_dir: Path | None = None, catalog: Catalog | None = None
) -> tuple[Target, ...]:
    """The targets that MODEL and its QUANTs mean, in the order of the quants, each once; makes no file.

    With no quant named: every variant of a folder, largest first, and the article's eight of a twin.
    `twins_dir` and `catalog` default to the person's own. Raises UnknownName for a model or a quant that is not there,
    UsageError for one that is ambiguous or not on this disk, and BadFile for a path that holds no GGUF.
    """
    ref = parse_model(model)
    wanted = tuple(dict.fromkeys(quant.lower() for quant in (ref.quant, *quants) if quant is not None))
    label = plain(model if ref.quant is None else model[: -len(ref.quant) - 1])
    match ref:
        case PathRef(path):
            return tuple(_file_target(label, variant) for variant in _chosen(label, path, wanted))
        case SynthRef(model_id):
            found = (catalog or load_catalog()).model(model_id)
            for quant in wanted:
                ftype_by_name(quant)
            folder = twins_dir or paths.twins_dir()
            return tuple(Target(label, quant, "twin", None, None, found, folder) for quant in wanted or ARTICLE_QUANTS)
        case CatalogRef(model_id):
            found = (catalog or load_catalog()).model(model_id)
            raise _not_here(found.id, found)
        case HubRef(repo):
            known = next(
                (entry for entry in catalog or load_catalog() if (entry.repo or "").lower() == repo.lower()), None
            )
            raise _not_here(repo, known)
        case TwinRef(repo):
            raise UsageError(
                f"twin:{repo} needs the header of a published file, and this ggbench reads local files alone",
                "make the twin of a catalog model with synth:<id>; see the ids with: ggbench models",
            )


def resolve_one(
    model: str, quant: str | None = None, *, twins_dir: Path | None = None, catalog: Catalog | None = None
) -> Target:
    """The one target that MODEL and QUANT mean.

    Raises as `resolve` does, and UsageError with the candidates and their sizes where they are several.
    """
    targets = resolve(model, () if quant is None else (quant,), twins_dir=twins_dir, catalog=catalog)
    if len(targets) > 1:
        raise UsageError(
            f"{targets[0].model} means {len(targets)} quants here; name one", f"there is {_target_listing(targets)}"
        )
    return targets[0]


def cached_twins(catalog: Catalog, twins_dir: Path | None = None) -> dict[str, tuple[str, ...]]:
    """The quants of each model, by its id, whose twins `materialize` has left in the cache."""
    folder = twins_dir or paths.twins_dir()
    stems = sorted(path.stem for path in folder.glob("*.gguf"))
    found = {
        model.id: tuple(stem.removeprefix(f"{model.id}-") for stem in stems if stem.startswith(f"{model.id}-"))
        for model in catalog
    }
    return {model_id: quants for model_id, quants in found.items() if quants}


def materialize(target: Target, on_progress: Callable[[int, int], None] | None = None) -> ModelFile:
    """The target's file as its header tells it; a twin that is not in the cache is written first.

    `on_progress` is told the bytes written and their total. Raises BadFile, and DoesNotFit where the disk lacks room.
    """
    path = target.path
    if target.synth_of is not None:
        from ggbench.gguf_file.twin import cached_twin

        folder = target.twins_dir or paths.twins_dir()
        model = target.synth_of
        path = cached_twin(model.id, model.hyper, target.quant, folder, on_progress=on_progress)
    assert path is not None
    return read_model_file(path)


def _chosen(label: str, path: Path, wanted: Sequence[str]) -> list[LocalVariant]:
    variants = [_with_quant(variant) for variant in local_variants(path)]
    if not variants:
        raise BadFile(f"no GGUF model in {label}", "name a .gguf file, or a folder that holds some")
    if not wanted:
        return variants
    chosen: dict[tuple[Path, ...], LocalVariant] = {}
    for quant in wanted:
        matches = [variant for variant in variants if variant.answers_to(quant)]
        if not matches:
            raise UnknownName("quant", quant, (), f"{label} holds {_variant_listing(variants)}")
        if len(matches) > 1:
            raise UsageError(
                f"{len(matches)} files in {label} answer to {quant!r}; give a file's name instead",
                f"there is {_variant_listing(matches)}",
            )
        chosen[matches[0].paths] = matches[0]
    return list(chosen.values())


def _with_quant(variant: LocalVariant) -> LocalVariant:
    if variant.quant is not None:
        return variant
    file = _read(variant)
    return dataclasses.replace(variant, quant=_NO_QUANT if file is None else quant_label(file))


def _file_target(label: str, variant: LocalVariant) -> Target:
    file = _read(variant)
    provenance: Literal["file", "twin"] = "twin" if file is not None and file.is_twin else "file"
    return Target(label, variant.quant or _NO_QUANT, provenance, variant.paths[0], variant.file_bytes)


def _read(variant: LocalVariant) -> ModelFile | None:
    """The variant's header; None for a broken file, which stays a target so that a sweep has a row with the reason."""
    try:
        return read_model_file(variant.paths[0], allow_missing_data=True)
    except GgbenchError:
        return None


def _not_here(name: str, known: CatalogModel | None) -> UsageError:
    download = (
        f"download a .gguf of {known.repo} and give its path" if known and known.repo else "give the path of a .gguf"
    )
    hint = f"measure its twin with synth:{known.id}, or {download}" if known else download
    return UsageError(f"{name} is not on this disk", hint)


def _variant_listing(variants: Sequence[LocalVariant]) -> str:
    return _listing([(variant.quant or _NO_QUANT, variant.paths[0], variant.file_bytes) for variant in variants])


def _target_listing(targets: Sequence[Target]) -> str:
    model = targets[0].synth_of
    if model is None:
        return _listing([(target.quant, target.path, target.file_bytes) for target in targets])
    from ggbench.gguf_file.twin import plan_twin

    planned = plan_twin(model.hyper, [target.quant for target in targets], name=model.id)
    return _listing([(target.quant, None, planned[target.quant].file_bytes) for target in targets])


def _listing(candidates: Sequence[tuple[str, Path | None, int | None]]) -> str:
    """Each quant with its size; the files' names instead where the quants do not tell them apart."""
    distinct = len({quant for quant, _, _ in candidates}) == len(candidates)
    return ", ".join(
        f"{quant if distinct or path is None else plain(path.name)} ({format_bytes(n_bytes)})"
        for quant, path, n_bytes in candidates
    )


def _split_quant(text: str, parts: tuple[str, str, str]) -> tuple[str, str | None]:
    name, colon, quant = parts
    if colon and not quant.strip():
        raise UsageError(f"no QUANT after the colon of {text!r}", "write MODEL:QUANT, or leave the colon out")
    return name, quant if colon else None


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..") or text.lower().endswith(".gguf")


def _exists(text: str) -> bool:
    try:
        return bool(text) and _path(text).exists()
    except OSError:
        return False


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
