"""The largest context within a budget, by few questions of an allocator that answers exactly for each length."""

from __future__ import annotations

from collections.abc import Callable

from ggbench.records.setup import KV_CELLS


def largest_n_ctx(
    need: Callable[[int], int], budget_bytes: int, ceiling: int, first_guess: int, bytes_per_token: float
) -> int:
    """The largest multiple of 256 up to `ceiling` whose bytes are within the budget; 0 where not even 256 are.

    `need` gives the bytes of a length and grows with it. It is asked for the answer and, below the ceiling, for the
    length right above, so what holds is verified on both sides. From `first_guess` the search goes as far as
    `bytes_per_token` lead, then by the line through the closest lengths known on either side of the budget; every
    fourth question halves what is left instead, against a curve that would lead on for long.
    """
    known: dict[int, int] = {}
    inside, outside = 0, ceiling // KV_CELLS + 1
    growth = max(1, round(bytes_per_token * KV_CELLS))
    guess = first_guess // KV_CELLS
    while outside - inside > 1:
        guess = min(max(guess, inside + 1), outside - 1)
        known[guess] = need(guess * KV_CELLS)
        if known[guess] <= budget_bytes:
            inside = guess
        else:
            outside = guess
        if len(known) % 4 == 0:
            guess = (inside + outside) // 2
        elif inside in known and outside in known:
            rise = known[outside] - known[inside]
            guess = inside + (budget_bytes - known[inside]) * (outside - inside) // rise
        else:
            guess += (budget_bytes - known[guess]) // growth
    return inside * KV_CELLS
