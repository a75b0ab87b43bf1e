"""A measured quant beside the published ones nearest to it, with every difference named."""

from __future__ import annotations

import re

from ggbench.models.published.rows import load_published
from ggbench.models.published.selection import LLAMA_CPP, NearRow, nearest_published
from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary

_NEAREST = 4
_SYSTEMS = {"llama-server": LLAMA_CPP, "llama-cpp-python": LLAMA_CPP, "vLLM": "vllm"}
"""The published rows' names of what servers run, by the program that a server's version begins with."""


def nearest_to(summary: QuantSummary) -> tuple[NearRow, ...]:
    """The published speeds of its model nearest to how it was measured; empty where none is of this model."""
    model = published_model(summary.subject)
    if model is None:
        return ()
    decode = summary.decode
    n_gen = decode.n_gen or None if decode else None
    longest = max((speed.n_prompt for speed in summary.prefills if not speed.n_depth), default=None)
    n_prompt = decode.n_prompt if decode and (n_gen or longest is None) else longest
    return nearest_published(
        load_published(),
        model,
        summary.subject.quant,
        device=device_of(summary),
        n_prompt=n_prompt,
        n_gen=n_gen,
        limit=_NEAREST,
        system=system_of(summary),
    )


def published_model(subject: Subject) -> str | None:
    """The published model of the same name, by MODEL or else by the file's name; None where none has it.

    `synth:qwen1.5-7b`, `Qwen/Qwen1.5-7B-Chat-GGUF` and `qwen1_5-7b-chat-q4_k_m.gguf` are all `qwen1.5-7b`.
    """
    names = sorted({published.model for published in load_published()}, key=len, reverse=True)
    for text in (subject.model, subject.file):
        spelt = text.lower().replace("_", ".")
        for name in names:
            if re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9])", spelt):
                return name
    return None


def system_of(summary: QuantSummary) -> str:
    """Return what ran the model, by the published rows' name: llama.cpp but for other servers, `vllm`."""
    server = summary.environment.server if summary.environment else ""
    if not server:
        return LLAMA_CPP
    return next((system for program, system in _SYSTEMS.items() if server.startswith(program)), server)


def device_of(summary: QuantSummary) -> str | None:
    """What ran the model: the main GPU where layers lay on one, else the CPU; None where it is not known, as of a
    server.
    """
    environment, setup = summary.environment, summary.llama
    if environment is None or not summary.setup.loads_file:
        return None
    if summary.memory.weights_on_gpu and environment.gpus:
        main = (setup.main_gpu if setup else None) or 0
        return environment.gpus[main if main < len(environment.gpus) else 0].name
    return environment.cpu
