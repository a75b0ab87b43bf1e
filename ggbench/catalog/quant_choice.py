"""Selection of variants by QUANT, for local folders and repos alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ggbench.catalog.local_files import LocalVariant
from ggbench.errors import UnknownName, UsageError
from ggbench.hub.repo_records import RepoVariant
from ggbench.plain import plain
from ggbench.units import format_bytes

_Variant = TypeVar("_Variant", LocalVariant, RepoVariant)


def choose_by_quant(
    quants: Sequence[str],
    variants: Sequence[_Variant],
    place: str,
    listed: Callable[[Sequence[_Variant]], str],
) -> tuple[_Variant, ...]:
    """Return the one variant that each quant selects, in the order of the quants, without duplicates.

    `place` names their location and `listed` formats a list of them, both for error messages. Raises UnknownName where
    no variant matches a quant, and UsageError where several do.
    """
    chosen: dict[_Variant, None] = {}
    for quant in quants:
        matches = [variant for variant in variants if variant.answers_to(quant)]
        if not matches:
            raise UnknownName("quant", quant, (), f"{place} contains {listed(variants)}")
        if len(matches) > 1:
            raise UsageError(
                f"{len(matches)} files in {place} match {quant!r}; give a file name instead",
                f"candidates: {listed(matches)}",
            )
        chosen[matches[0]] = None
    return tuple(chosen)


def list_candidates(candidates: Sequence[tuple[str, str, int | None]]) -> str:
    """Format each quant with its size in bytes; the printable names instead where quants are not unique."""
    distinct = len({quant for quant, _, _ in candidates}) == len(candidates)
    return ", ".join(
        f"{quant if distinct and quant else plain(name)} ({format_bytes(n_bytes)})"
        for quant, name, n_bytes in candidates
    )
