"""What the numbers and marks of every table mean: one text for `--help`, `ggbench help numbers` and the TUI's `?`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

UNSTEADY = "!"
"""Mark before the speed of a run that was disturbed."""
MARKED = f"{UNSTEADY} unsteady: the machine was disturbed while this was measured"
"""Caption of a table whose notes say what was seen."""
MARKED_RUN = f"{MARKED}; ggbench results show RUN says how"
"""Caption of a list of runs."""


class Term(msgspec.Struct, frozen=True):
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
    "qwen2_5": Term(
        "Qwen2.5 tok/s",
        "Generated tokens over the time of prefill and decode together, as the tables of Qwen1.5, Qwen2 and Qwen2.5"
        " count; of a batch, those of all its sequences.",
    ),
    "qwen3": Term(
        "Qwen3 tok/s",
        "Input and generated tokens over the same time, as the tables of Qwen3 count: up to 8 times more.",
    ),
    "throughput": Term(
        "decode tok/s",
        "Throughput: generated tokens of all sequences over the time of the decode alone, without sampling, as"
        " llama-batched-bench's S_TG; gain is its ratio to batch 1.",
    ),
    "ttft": Term(
        "TTFT",
        "Time to first token in ms: the prompts of all sequences are read, and a token sampled from the logits of the"
        " last prompt token. It is the first generated one, as of llama-server.",
    ),
    "step": Term(
        "p50, p95, p99",
        "Latency of a step, in which each sequence of the batch gets one token; token is its mean, as the tables of"
        " bitsandbytes count latency.",
    ),
    "case_memory": Term(
        "memory",
        "Weights, KV cache and compute buffers of the case, in GB (10^9) and GiB (2^30), which the tables of Qwen call"
        " GB; peak is the largest resident memory of the process until then.",
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
    "loss": Term(
        "loss",
        "Mean KL divergence in nats for each token, from the base of a quality run, else (~) the published typical of"
        " the quant's type from 16 bits. What a KV cache loses is added; + ? where that is unknown.",
    ),
    "no_needs": Term("no needs", "What would be picked if no context, speed or loss were needed."),
    "turn": Term(
        "turn",
        "Seconds to read the prompt of the workload and to answer it, from measured or forecast prefill and decode.",
    ),
    "answer": Term(
        "answer",
        "Tokens/s of the workload's answer; ≤ the best that the bandwidth allows, which a measured speed is below.",
    ),
    "knee": Term(
        "knee",
        "A prompt length where prefill is no longer bound by reading memory but by compute, or the other way round.",
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
        "Unsteady: another program, heat, a change of clocks, a suspend, or CPUs or memory that came or went disturbed"
        " the run, and its numbers should not be trusted. The details of the run say what was seen.",
    ),
    "unproven": Term("8,192?", "A largest n_ctx that loads, but that no decode proved."),
    "training": Term("32,768*", "A largest n_ctx beyond the length that the model was trained for."),
    "ceiling": Term("≥ 1,048,576", "A largest n_ctx where the search ended: more may fit."),
    "fits": Term("✓ ✗", "Fits the memory, or does not; of a run: completed, or failed (… still running, – cancelled)."),
    "better": Term(
        "★",
        "In a comparison: better than another run, with an interval of the ratio that excludes 1, and the best.",
    ),
}
"""Every term by its key, in the order of `ggbench help numbers`."""

PROVENANCE = (
    ("measured", "Timed or allocated on this machine, with these tensors; results show has the rest."),
    ("planned", "Computed from the file's header by llama.cpp's own allocator; nothing was loaded."),
    ("proven", "A largest n_ctx at whose far end tokens were decoded."),
    ("forecast", "Twins of a few of the model's layers were timed here, and all layers counted from them."),
    (
        "other runs",
        "The share of the bandwidth's bound that at least two other models reached here, applied to this one.",
    ),
    (
        "≤, bound",
        "The best that the memory's bandwidth allows. A CPU reaches a half or a third of it; it can prove only that a"
        " need is missed.",
    ),
    (
        "~",
        "In a pick: typical of the quant's type, as published of Llama models, not of this model. In a grid of"
        " tokens/s: expected, as the case was skipped.",
    ),
    ("twin", "Measured with a file of the model's true shape and types, without trained weights."),
    ("imported", "Read from another tool's file; it never counts as measured on this machine."),
    ("published", "As printed in a document by others, with other hardware, text or versions."),
    (
        "GPU readings",
        "Clocks, temperature, power, memory and what holds the clocks down are read once a second beside a run; energy"
        " per token comes from the GPU's own counter. What NVML does not report is unknown, never zero.",
    ),
)
"""Where a number comes from, as tables say it."""

DECODE = ("w", "b", "speed", "w_ratio", "b_ratio", "b_w16", "bpw", "interval", "bound", "unknown", "unsteady")
"""What a decode shows."""
PREFILL = ("prefill", "interval", "bound", "unknown")
"""What a prefill shows."""
SPEED = ("qwen2_5", "qwen3", "throughput", "ttft", "step", "case_memory", "w", "b", "interval", "bound", "unknown")
"""What a run by input length and batch size shows."""
PLAN = ("w", "b", "bpw", "best_speed", "unknown", "training", "ceiling", "fits")
"""What a plan shows."""
PICK = ("loss", "answer", "turn", "no_needs", "interval", "unknown", "training", "ceiling", "fits")
"""What a pick shows."""
MAXCTX = ("planned", "theory", "unknown")
"""What a search for the largest context shows."""
LIMITS = ("w", "b", "bpw", "best_speed", "knee", "unknown")
"""What theory shows."""
LISTS = ("w", "b", "speed", "interval", "bound", "unknown", "unsteady")
"""What a list of runs shows."""


def terms(keys: Iterable[str] = TERMS) -> list[tuple[str, str]]:
    """Return names and meanings, for a list of definitions."""
    return [(TERMS[key].name, TERMS[key].text) for key in keys]
