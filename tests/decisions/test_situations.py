"""What an experienced person would run in situations that people ask about, and whether a pick agrees.

Each row was written from public advice before the rules were: a machine, a model and a need, the answers that would be
accepted, and why. Planned from the catalog's shapes; nothing is downloaded or measured, so speeds are estimates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of
from ggbench.decisions.pick.decide import decide
from ggbench.decisions.pick.models import Competitors, of_planned
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.record import Pick
from ggbench.engines.contract import Engine, launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.sessions import known_sessions
from ggbench.machine.description import describe_machine
from ggbench.models.reference import ModelRef
from ggbench.models.targets import Target, resolve_headers
from ggbench.sizing.budget import described_budget, with_main_memory
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.units import parse_tokens

pytestmark = pytest.mark.llama

# ruff: noqa: E501 - a table

# Where the advice is from; read in November 2026.
CARDS = (
    "model cards of bartowski: a file 1 to 2 GB smaller than the GPU's memory; q4_k_m good, q5_k_m and q6_k recommended"
)
LARGEST = "mylocalai.org, GGUF cheat sheet: the largest quant that is offloaded whole wins"
BY_CARD = "bmdpat.com, How to pick a GGUF quant level: 8 GB 7B q4 or q5, 12 GB 7B q8, 16 GB 13B q5 or q8, 24 GB 34B q4"
BY_GPU = "butler.aiskillhub.info, The best local LLM for your GPU: by memory, with quants and contexts"
LADDER = "solar.codes, Choosing quantized models: not below q4; a sharp 8B beats a drowning 70B"
RTX_2080 = "AlexsJones/llmfit, pull requests 755, 774 and 778: an RTX 2080 with llama.cpp, -ngl or --n-cpu-moe for each"
OSS_20B = "smeltcore.com, gpt-oss-20b on an RTX 3060: --n-cpu-moe 2 at 16k, 64 tok/s"
OSS_GUIDE = "llama.cpp, discussion 15396: gpt-oss in MXFP4; --n-cpu-moe where it does not fit, no quantized KV cache"
OSS_8GB = "odysseus-dev/odysseus, discussion 5564: gpt-oss-20b on 8 GB with -ncmoe 14, 25 tok/s"
OSS_120B = "r/LocalLLaMA: 120B runs awesome on just 8 GB VRAM, all experts in 64 to 96 GB of main memory, 25 tok/s"
OSS_2X3090 = "llmgarage.ai, gpt-oss-120b on two RTX 3090: --n-cpu-moe and a tensor split, 10 to 17 tok/s"
LLAMA_70B = "defiledai.com, Llama 3.1 70B guide: q4_k_m on two RTX 3090, 21 tok/s; never q2_k"
CPU_70B = "zenn.dev/7shi, Llama 3.3 70B: q4_k_m 1.0 tok/s on a CPU, 1.3 with 16 GB of VRAM"
MOE_CPU = "inventivehq.com, MoE on CPU: qwen3-30b-a3b q4_k_m 10.6 tok/s on an i7-8700, a dense 8B 4.2"
MOE_12GB = (
    "butler.aiskillhub.info: qwen3-30b-a3b with partial offload on 12 GB; llama.cpp pull request 15077 (--n-cpu-moe)"
)
KV_Q8 = "smcleod.net, K/V context quantisation: q8_0 has minimal impact, q4_0 a noticeable one; f16 if it fits"
KV_CODER = "P. Jazdzyk, Quantization of Qwen3-Coder-30B: q4_k_m with a q8_0 cache for long contexts"
GEMMA_27B = "miker.blog, Gemma 3 and QAT: 27B at 4 bits on a 24 GB card"
GIGA_32B = "gigagpu.com, Qwen 2.5 32B: on a 24 GB card q4, 8k to 16k of context"
LAPTOP = "promptquorum.com, Local LLMs on a laptop: 16 GB 8B q4_k_m or q5_k_m, 8 GB 4B q4_k_m"
# What people of 2026 ended with.
CLUB_3090 = (
    "github.com/noonghunna/club-3090, issue 1111: UD-Q4_K_XL with a q4_0 cache, 131,072 tokens, 40 tok/s with MTP"
)
CLUB_2X3090 = (
    "github.com/noonghunna/club-3090, issue 1090: UD-Q8_K_XL with a q8_0 cache, 262,144 tokens, 43 tok/s with MTP"
)
QWEN_4090 = (
    "tianchengwu.com, Running Qwen-3.5-27B on RTX 4090: q4_k_m or q5_k_m with a q4_0 cache, 33 and 30 tok/s at 128k"
)
QWEN_5090 = "github.com/sudoingX/qwen38-mtp, pull request 31: UD-Q5_K_XL with a q4_0 cache, 262,144 tokens, 70 tok/s"
QWEN_16GB = "r/LocalLLaMA, Qwen3.6-27B IQ4_XS full VRAM (28 April): the only one for 16 GB, with a q8_0 or smaller cache; 65k of a file 0.4 GB smaller than the published one"
SPARK_35B = "subterratechnologies.com, Qwen3.6-35B on GB10, 243 runs: UD-Q4_K_M, f16 cache; q8_0 runs too"
SPARK_120B = "conselara.dev, DGX Spark model comparison: gpt-oss-120b in MXFP4 with 128k, 32 to 60 tok/s"
GEMMA_3090 = "smeltcore.com, Gemma 4 26B A4B on RTX 3090: q4_k_m, 119 tok/s at 4k"
GEMMA_16GB = "r/LocalLLaMA, Gemma 4 26B beast on 16GB VRAM (setupai.cc): UD-IQ4_XS with an f16 cache, 30k, 80 tok/s"
GEMMA_8GB = "smeltcore.com, Gemma 4 12B on RTX 4060: QAT q4_0 or q4_k_m, whole on 8 GB"
OLD_8GB = "r/LocalLLaMA, 30B MoE models on an old GTX 1080 (dev.to/mdda): q4_k_m, -ncmoe 20, 128k, 20 tok/s"
OLD_6GB = "frankcasanova.net, Running a 35B on a 6 GB GPU: -ncmoe 35 on a GTX 1060 with 24 GB of DDR4, 64k, 17 tok/s"
QWEN_12GB = "smeltcore.com, Qwen3.6 35B-A3B on an RTX 4070: UD-Q4_K_XL, experts in 32 GB of main memory, 128k, 81 tok/s with MTP"


class Situation(NamedTuple):
    model: str
    machine: str
    """`--gpu`, `--ram` or both, separated by `+`."""
    need: str
    """The context, or a workload."""
    quants: str
    """Accepted quants."""
    caches: str
    """Accepted types of the KV cache."""
    place: str
    """`gpu` for all of it, `experts` or `layers` in main memory, or `cpu`; several if either is accepted."""
    why: str
    source: str


GOOD = "q5_k_m q6_k q8_0"
SITUATIONS = (
    # 8 GiB
    Situation("qwen2.5-7b", "rtx-4060", "8k", "q4_k_m q5_k_m q6_k", "f16", "gpu", "q5_k_m is the usual best that fits 8 GB", BY_CARD),
    Situation("llama-3.1-8b", "rtx-4060", "8k", "q4_k_m q5_k_m", "f16 q8_0", "gpu", "5 GB of weights leave room for the context", BY_GPU),
    Situation("qwen3-4b", "rtx-4060", "8k", GOOD, "f16", "gpu", "a small model has room for good quants", CARDS),
    Situation("qwen3-8b", "rtx-4060", "16k", "q4_k_m", "q8_0", "gpu", "halving the cache beats a worse quant or spilling", KV_Q8),
    Situation("gemma-3-12b", "rtx-2080+62GiB@100GB/s", "8k", "q4_k_m", "f16 q8_0", "layers", "-ngl 44 of 49, 26 tok/s", RTX_2080),
    Situation("qwen3-14b", "rtx-2080+62GiB@100GB/s", "8k", "q4_k_m", "f16 q8_0", "layers", "-ngl 32 of 41, 17 tok/s", RTX_2080),
    Situation("qwen3-30b-a3b", "rtx-2080+62GiB@100GB/s", "8k", "q4_k_m q5_k_m", "f16", "experts", "-ncmoe 36, 37 tok/s", RTX_2080),
    Situation("gpt-oss-20b", "rtx-4060+32GiB@50GB/s", "16k", "mxfp4", "f16", "experts", "-ncmoe 14, 25 tok/s", OSS_8GB),
    Situation("gpt-oss-120b", "rtx-4060+96GiB@80GB/s", "16k", "mxfp4", "f16", "experts", "all experts on the CPU", OSS_120B),
    # 12 GiB
    Situation("llama-3.1-8b", "rtx-3060", "8k", GOOD, "f16", "gpu", "up to q8_0 fits", BY_CARD),
    Situation("qwen2.5-14b", "rtx-3060", "8k", "q4_k_m q5_k_m", "f16", "gpu", "14B at 4 to 5 bits is what 12 GB are for", CARDS),
    Situation("qwen2.5-14b", "rtx-3060", "16k", "q4_k_m q5_k_m", "q8_0", "gpu", "the cache gives before the quant does", KV_Q8),
    Situation("gemma-3-12b", "rtx-3060", "8k", "q4_k_m q5_k_m q6_k", "f16", "gpu", "q5_k_m, whole on the GPU", BY_GPU),
    Situation("mistral-nemo-12b", "rtx-3060", "32k", "q4_k_m q5_k_m", "q8_0", "gpu", "a long context with a q8_0 cache", KV_Q8),
    Situation("qwen3-30b-a3b", "rtx-3060", "16k", "q4_k_m q5_k_m", "f16", "experts", "-ncmoe 24 rather than q2_k", MOE_12GB),
    Situation("gpt-oss-20b", "rtx-3060", "16k", "mxfp4", "f16", "experts", "-ncmoe 2, 64 tok/s", OSS_20B),
    Situation("qwen3-32b", "rtx-3060+64GiB@50GB/s", "8k", "q4_k_m", "f16 q8_0", "layers", "q4 partly offloaded, slow", CARDS),
    # 16 GiB
    Situation("gpt-oss-20b", "rtx-4080", "8k", "mxfp4", "f16", "gpu", "made to run in 16 GB", OSS_GUIDE),
    Situation("qwen3-14b", "rtx-4080", "16k", GOOD, "f16", "gpu", "near-lossless fits", BY_GPU),
    Situation("mistral-small-24b", "rtx-4080", "8k", "q4_k_m", "q8_0", "gpu", "q4_k_m just fits with a smaller cache", BY_GPU),
    Situation("qwen3-30b-a3b", "rtx-4080+64GiB@60GB/s", "16k", "q4_k_m q5_k_m", "f16", "experts", "a few experts on the CPU", MOE_12GB),
    Situation("gemma-3-27b", "rtx-4080+64GiB@60GB/s", "8k", "q4_k_m q3_k_m", "f16 q8_0", "layers gpu", "q4 with some layers out, or q3", LARGEST),
    # 24 GiB
    Situation("llama-3.1-8b", "rtx-3090", "8k", GOOD, "f16", "gpu", "nothing to save", BY_CARD),
    Situation("qwen3-32b", "rtx-3090", "8k", "q4_k_m", "f16", "gpu", "the consensus for 24 GB", BY_GPU),
    Situation("qwen2.5-32b", "rtx-4090", "16k", "q4_k_m", "q8_0", "gpu", "16k fit with a smaller cache", GIGA_32B),
    Situation("gemma-3-27b", "rtx-3090", "8k", "q4_k_m q5_k_m", "f16", "gpu", "4 or 5 bits fit whole", GEMMA_27B),
    Situation("mistral-small-24b", "rtx-3090", "32k", "q4_k_m q5_k_m", "f16 q8_0", "gpu", "long contexts at 4 to 5 bits", BY_GPU),
    Situation("qwen3-30b-a3b", "rtx-3090", "32k", "q4_k_m", "f16 q8_0", "gpu", "whole, at 150 tok/s", KV_CODER),
    Situation("gpt-oss-20b", "rtx-3090", "128k", "mxfp4", "f16", "gpu", "128k take 18 GB", OSS_GUIDE),
    Situation("gpt-oss-120b", "rtx-3090+64GiB@60GB/s", "8k", "mxfp4", "f16", "experts", "64 GB are enough beside 24", OSS_120B),
    Situation("llama-3.1-70b", "rtx-3090+64GiB@60GB/s", "8k", "q4_k_m", "f16 q8_0", "layers", "slow; nothing better than q4", CPU_70B),
    # 2 x 24 GiB
    Situation("llama-3.1-70b", "rtx-3090x2", "8k", "q4_k_m", "f16", "gpu", "what two 3090 are bought for", LLAMA_70B),
    Situation("qwen3-32b", "rtx-3090x2", "32k", GOOD, "f16", "gpu", "room for quality and context", CARDS),
    Situation("qwen3-30b-a3b", "rtx-3090x2", "128k", GOOD, "f16", "gpu", "128k of context at 5 to 6 bits", CARDS),
    Situation("gpt-oss-120b", "rtx-3090x2+64GiB@50GB/s", "32k", "mxfp4", "f16", "experts", "-ncmoe and -ts", OSS_2X3090),
    # main memory alone
    Situation("llama-3.1-8b", "64GiB@ddr5-6000x2", "8k", "q4_k_m q5_k_m q6_k", "f16", "cpu", "fast enough at 4 to 6 bits", LAPTOP),
    Situation("qwen3-30b-a3b", "64GiB@ddr5-6000x2", "8k", "q4_k_m q5_k_m q6_k q8_0", "f16", "cpu", "what a box with RAM and no GPU should run", MOE_CPU),
    Situation("gpt-oss-20b", "64GiB@ddr5-6000x2", "8k", "mxfp4", "f16", "cpu", "3.6B active parameters", OSS_GUIDE),
    Situation("gpt-oss-120b", "96GiB@ddr5-6000x2", "8k", "mxfp4", "f16", "cpu", "5B active parameters", OSS_120B),
    Situation("qwen3-32b", "64GiB@ddr5-6000x2", "8k", "q4_k_m", "f16", "cpu", "slow; q4 is the least bad", LADDER),
    Situation("llama-3.1-70b", "64GiB@ddr5-6000x2", "8k", "q4_k_m", "f16", "cpu", "about 1 tok/s", CPU_70B),
    # laptops
    Situation("llama-3.1-8b", "16GiB@ddr4-3200x2", "8k", "q4_k_m q5_k_m", "f16", "cpu", "4 to 5 bits", LAPTOP),
    Situation("qwen3-4b", "8GiB@ddr4-3200x2", "8k", "q4_k_m q5_k_m", "f16", "cpu", "4B at q4_k_m", LAPTOP),
    Situation("qwen3-30b-a3b", "32GiB@ddr5-4800x2", "8k", "q4_k_m q5_k_m", "f16", "cpu", "18 GB of 32", MOE_CPU),
    Situation("qwen2.5-7b", "rtx-4060+16GiB@ddr5-4800x2", "documents", "q4_k_m q5_k_m", "f16 q8_0", "gpu", "32k at 4 to 5 bits", BY_CARD),
    # 2026
    Situation("qwen3.8-27b", "rtx-3090", "128k", "q4_k_m", "f16 q8_0 q4_0", "gpu", "whole on the card; vision and MTP took what f16 needs", CLUB_3090),
    Situation("qwen3.5-27b", "rtx-4090", "128k", "q4_k_m q5_k_m", "q8_0 q4_0", "gpu", "the cache gives, not the weights", QWEN_4090),
    Situation("qwen3.6-27b", "rtx-4080", "40k", "iq4_xs", "q8_0 q4_0", "gpu", "a dense model is not split where a smaller cache keeps it whole", QWEN_16GB),
    Situation("qwen3.8-27b", "rtx-3090x2", "256k", "q6_k q8_0", "f16 q8_0", "gpu", "room for near-lossless weights", CLUB_2X3090),
    Situation("qwen3.8-27b", "rtx-5090", "256k", "q4_k_m q5_k_m q6_k", "q8_0 q4_0", "gpu", "all of the context with a smaller cache", QWEN_5090),
    Situation("gemma-4-26b-a4b", "rtx-3090", "8k", "q4_k_m q5_k_m q6_k", "f16", "gpu", "whole, at 119 tok/s", GEMMA_3090),
    Situation("gemma-4-26b-a4b", "rtx-5060-ti-16gb", "16k", "iq4_xs", "f16", "gpu", "the largest that is whole on 16 GB", GEMMA_16GB),
    Situation("gemma-4-12b", "rtx-4060", "8k", "q4_0 q4_k_m iq4_xs", "f16", "gpu", "4 bits just fit", GEMMA_8GB),
    Situation("gemma-4-26b-a4b", "gtx-1080+32GiB@34GB/s", "128k", "q4_k_m", "f16 q8_0 q4_0", "experts", "most experts in main memory, 20 tok/s", OLD_8GB),
    Situation("qwen3.6-35b-a3b", "gtx-1060+24GiB@38GB/s", "64k", "iq4_xs q4_k_m", "f16 q8_0", "experts", "17 tok/s on a card of 2016", OLD_6GB),
    Situation("qwen3.6-35b-a3b", "rtx-4070+32GiB@ddr5-5600x2", "128k", "q4_k_m", "f16 q8_0", "experts", "experts in main memory rather than fewer bits", QWEN_12GB),
    Situation("qwen3.6-35b-a3b", "dgx-spark", "8k", "q4_k_m q5_k_m q6_k q8_0", "f16", "gpu", "nothing to save", SPARK_35B),
    Situation("gpt-oss-120b", "dgx-spark", "128k", "mxfp4", "f16", "gpu", "its whole context", SPARK_120B),
)  # fmt: skip
DISAGREE = {
    (
        "gpt-oss-20b",
        "rtx-3060",
        "16k",
    ): "a q8_0 cache keeps all experts on the card, and loses 0.003 nats at the median",
    ("qwen3-4b", "8GiB@ddr4-3200x2", "8k"): "q6_k fits, is comfortable too, and nobody can tell it from the original",
    ("qwen3-8b", "rtx-4060", "16k"): "q5_k_m with that cache leaves 0.6 GiB",
    ("qwen3-30b-a3b", "32GiB@ddr5-4800x2", "8k"): "q6_k leaves 3.8 GiB beside what the system keeps, and loses less",
    ("mistral-small-24b", "rtx-4080", "8k"): "f16 fits as well by llama.cpp's allocator, and leaves 0.5 GiB",
    ("qwen2.5-14b", "rtx-3060", "8k"): "f16 leaves 0.2 GiB; a q8_0 cache loses 0.002 nats there",
    (
        "gemma-3-27b",
        "rtx-3090",
        "8k",
    ): "q6_k leaves 1 GiB, is comfortable too, and nobody can tell it from the original",
    ("qwen3.8-27b", "rtx-3090", "128k"): "q5_k_m with that q4_0 cache leaves 2.6 GiB; both together lose 0.010 nats",
    (
        "qwen3.5-27b",
        "rtx-4090",
        "128k",
    ): "by published rows iq4_xs loses 0.007 nats of this model, so the cache need not give",
    (
        "gemma-4-26b-a4b",
        "rtx-5060-ti-16gb",
        "16k",
    ): "q4_k_m with the experts of 4 layers in main memory loses little, at 68 tok/s",
}
"""Situations in which the pick is another than the advice, and why it is not wrong."""
SLOW = {("llama-3.1-8b", "16GiB@ddr4-3200x2"), ("llama-3.1-70b", "rtx-3090+64GiB@60GB/s"), ("qwen3-32b", "rtx-3060+64GiB@50GB/s"),
        ("qwen3-32b", "64GiB@ddr5-6000x2"), ("llama-3.1-70b", "64GiB@ddr5-6000x2")}  # fmt: skip
"""Where it is not expected to be comfortable."""
SAMPLE = (0, 14, 23, 41)
"""Situations of the usual suite."""


@functools.cache
def targets(model: str) -> tuple[Target, ...]:
    return resolve_headers(ModelRef("catalog", model, label=model))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = launch_engine(LlamaConfig(threads=1))
    yield engine
    engine.close()


def picked(
    situation: Situation, engine: Engine, min_speed: float | None = None
) -> tuple[Pick, PickRequest, DryAllocator]:
    gpus = [part for part in situation.machine.split("+") if part[0].isalpha()]
    ram = next((part for part in situation.machine.split("+") if not part[0].isalpha()), None)
    budget = described_budget(describe_machine(gpus, ram), reserve_bytes=None)
    needs = Needs(known_sessions()[situation.need]) if situation.need.isalpha() else Needs(
        given_n_ctx=parse_tokens(situation.need), tok_s=min_speed)  # fmt: skip
    setup = LlamaConfig(threads=8)  # of a common desktop
    caches = caches_of([(name, name) for name in CACHE_TYPES], setup)
    allocator = DryAllocator(engine, setup_to_load(setup, budget), budget.devices)
    request = PickRequest(needs, with_main_memory(budget), setup, caches)
    steps = decide(Competitors(of_planned(targets(situation.model))), request, allocator, None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, request, allocator


def place_of(found: Pick, on_gpu: bool) -> str:
    assert found.recommended is not None
    candidate = found.recommended
    if not on_gpu:
        return "cpu"
    return "gpu" if not candidate.is_split else "experts" if candidate.setup.n_cpu_moe else "layers"


def answer(situation: Situation, found: Pick) -> tuple[str, bool]:
    """Return the pick in words, and whether the advice accepts it."""
    if found.recommended is None:
        return "nothing", False
    candidate, place = found.recommended, place_of(found, situation.machine[0].isalpha())
    agrees = (
        candidate.row.quant in situation.quants.split()
        and candidate.cache[0] in situation.caches.split()
        and place in situation.place.split()
        and (found.comfortable is False) == ((situation.model, situation.machine) in SLOW)
    )
    return " ".join([candidate.row.quant, candidate.cache[0], place, candidate.options, str(found.comfortable)]), agrees


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(each, id="-".join(each[:3]), marks=() if index in SAMPLE else pytest.mark.slow)
        for index, each in enumerate(SITUATIONS)
    ],
)
def test_a_pick_is_what_an_experienced_person_runs(situation: Situation, engine: Engine) -> None:
    """Those of DISAGREE are argued there. The longest contexts of the short table are those of plan."""
    found, request, allocator = picked(situation, engine)
    text, agrees = answer(situation, found)
    assert agrees != (situation[:3] in DISAGREE), text
    for own in (each for _, each in found.listed if each.fits):
        assert request.budget.on_gpu or not own.is_split
        (variant,) = (each for each in targets(situation.model) if each.quant == own.row.quant)
        [row] = plan([variant], PlanRequest(request.budget, own.setup), allocator)
        offered = row.used_of(row.planned_n_ctx or 0)
        assert (own.max_n_ctx, own.row.left_bytes) == (offered, row.left_bytes), own.name


class Unmet(NamedTuple):
    model: str
    machine: str
    need: str
    min_speed: float | None
    nearest: str
    """What comes nearest, as a person would run it."""


UNMET = (
    Unmet("gpt-oss-120b", "rtx-3090+64GiB@50GB/s", "32k", 25.0, "mxfp4"),
    Unmet("gpt-oss-120b", "32GiB@ddr5-5600x2", "8k", None, "mxfp4"),
    Unmet("llama-3.1-70b", "rtx-3090+64GiB@50GB/s", "8k", 20.0, "q4_k_m"),
)


@pytest.mark.parametrize(
    "unmet", [pytest.param(each, marks=[pytest.mark.slow] * (each is UNMET[-1])) for each in UNMET]
)
def test_where_nothing_will_do_it_names_what_comes_nearest(unmet: Unmet, engine: Engine) -> None:
    """Not a quant that nobody wants, nor one that lacks more than the machine has."""
    found, _, _ = picked(Situation(*unmet[:3], "", "", "", "", ""), engine, unmet.min_speed)
    assert found.recommended is None and found.nearest_miss is not None
    nearest = found.nearest_miss
    assert " ".join([nearest.quant, nearest.cache[0], nearest.options]).startswith(unmet.nearest)
