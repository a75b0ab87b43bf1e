"""Which of several variants QUANTs mean, in a folder as in a repo."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from ggbench.errors import UnknownName, UsageError


class Selectable(Hashable, Protocol):
    """What a quant may name."""

    def answers_to(self, quant: str) -> bool:
        """Whether a person who says `quant` may mean it."""


_Variant = TypeVar("_Variant", bound=Selectable)


def choose_by_quant(
    quants: Sequence[str],
    variants: Sequence[_Variant],
    place: str,
    listed: Callable[[Sequence[_Variant]], str],
) -> tuple[_Variant, ...]:
    """The one variant that each quant means, in the order of the quants, each once.

    `place` says where they are and `listed` what some of them are, both for messages. Raises UnknownName for a quant
    that none answers to, and UsageError for one that several do.
    """
    chosen: dict[_Variant, None] = {}
    for quant in quants:
        matches = [variant for variant in variants if variant.answers_to(quant)]
        if not matches:
            raise UnknownName("quant", quant, (), f"{place} holds {listed(variants)}")
        if len(matches) > 1:
            raise UsageError(
                f"{len(matches)} files in {place} answer to {quant!r}; give a file's name instead",
                f"there is {listed(matches)}",
            )
        chosen[matches[0]] = None
    return tuple(chosen)
