"""What the numbers and marks of every table mean: one text for `--help`, `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

UNSTEADY = "!"
"""Before the speed of a run that was disturbed."""
MARKED = f"{UNSTEADY} unsteady: the machine was disturbed while this was measured"
"""Below a table whose notes say what was seen."""
MARKED_RUN = f"{MARKED}; ggbench results show RUN says how"
"""Below a list of runs."""


@dataclass(frozen=True, slots=True)
class Term:
    """A number or a mark as tables show it, with its meaning."""

    name: str
    text: str


FORMULA = "latency(n) = (n - 1) / W + B, with n tokens in the KV cache"

TERMS: dict[str, Term] = {
    "w": Term(
        "W",
        "Tokens until one token takes 1 ms longer: the cost of reading the KV cache. A higher W is better."
        " At least 247 tokens have to be decoded; on a GPU a thousand or more.",
    ),
    "b": Term(
        "B",
        "Latency of the first token in ms: the cost of reading the weights. A lower B is better. It comes from the same"
        " line as W, so there is no B without W.",
    ),
    "speed": Term(
        "speed",
        "Tokens decoded in a second, over the whole run and without sampling. It falls as the context grows, so compare"
        " runs of equal length.",
    ),
    "prefill": Term("prefill", "Time to read a prompt from an empty cache, in ms: the median of the timings."),
    "w_ratio": Term("W%", "Measured W over the W that the memory's bandwidth allows; 100 % is the physical limit."),
    "b_ratio": Term(
        "B%",
        "The B that the memory's bandwidth allows over the measured B: at 40 % the weights are read at 40 % of the"
        " bandwidth's speed, in 2.5 times its time.",
    ),
    "b_w16": Term("B as w16", "B x 16 / BPW: B as if every weight had 16 bits, to compare quants of different size."),
    "bpw": Term("BPW", "Bits per weight: tensor bytes x 8 / parameters, from the tensor table of the file."),
    "best_speed": Term(
        "tok/s at 16k",
        "The speed at that n_ctx which the memory's bandwidth allows; a measured speed is lower. ✗ behind it: a context"
        " of that length does not fit.",
    ),
    "planned": Term(
        "planned",
        "The largest n_ctx whose weights, KV cache and compute buffers fit into the budget: the max n_ctx of ggbench"
        " plan, before anything is allocated.",
    ),
    "theory": Term("theory", "The largest n_ctx if there were only weights and KV cache; it is never reached."),
    "knee": Term(
        "knee",
        "The prompt length where prefill is no longer bound by reading memory but by compute: rough if lm_head were"
        " computed for every token, exact for the last alone.",
    ),
    "interval": Term(
        "205 ±4",
        "A value with its 95 % interval, 205 (180–310) where one side is longer. It accounts for the noise within a"
        " run; what changes from one run to the next, such as clocks, shows only with --repeat.",
    ),
    "bound": Term(
        "> 1234, < 13.6",
        "A bound: the value is above or below this, and the run was too short or too noisy to say more. Nothing is"
        " computed from a bound.",
    ),
    "unknown": Term("—", "Unknown, or not measured."),
    "unsteady": Term(
        UNSTEADY,
        "Unsteady: another program, heat or a change of clocks disturbed the run, and its numbers should not be"
        " trusted. The details of the run say what was seen.",
    ),
    "unproven": Term("8,192?", "A largest n_ctx that loads, but that no decode proved."),
    "training": Term("32,768*", "A largest n_ctx beyond the length that the model was trained for."),
    "ceiling": Term("≥ 1,048,576", "A largest n_ctx where the search ended: more may fit."),
    "fits": Term("✓ ✗", "Fits the memory, or does not; of a run: completed, or failed (… still running, – cancelled)."),
    "better": Term(
        "★",
        "In a comparison: better than another run, with intervals that do not overlap, and no run is better than it.",
    ),
}
"""Every term by its key, in the order of `ggbench help numbers`."""

DECODE = ("w", "b", "speed", "w_ratio", "b_ratio", "b_w16", "bpw", "interval", "bound", "unknown", "unsteady")
"""What a decode shows."""
PREFILL = ("prefill", "interval", "bound", "unknown")
"""What a prefill shows."""
PLAN = ("w", "b", "bpw", "best_speed", "unknown", "training", "ceiling", "fits")
"""What a plan shows."""
MAXCTX = ("planned", "theory", "unknown")
"""What a search for the largest context shows."""
LIMITS = ("w", "b", "bpw", "best_speed", "knee", "unknown")
"""What theory shows."""
LISTS = ("w", "b", "speed", "interval", "bound", "unknown", "unsteady")
"""What a list of runs shows."""


def terms(keys: Iterable[str] = TERMS) -> list[tuple[str, str]]:
    """Return names and meanings, for a list of definitions."""
    return [(TERMS[key].name, TERMS[key].text) for key in keys]
