"""Every theory cell of the article, as printed, against the functions."""

import csv
import functools
import math
from pathlib import Path

import msgspec.structs

from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.machine.description import parse_gpus
from ggbench.models.catalog import load_catalog
from ggbench.sizing.theory.kv_cache import KvCache, kv_cache
from ggbench.sizing.theory.limits import PrefillLimit, decode_line, hardware_of, n_ctx_that_fits
from ggbench.sizing.theory.weights import Parameters, count_parameters, scheme_bits, uniform_weights
from ggbench.units import GIB, MIB

CELLS = Path(__file__).parents[2] / "data" / "article_theory.csv"
LONGEST = 32_768
NO_KNEE = "无"

Cell = dict[str, str]


def read_cells() -> list[Cell]:
    with CELLS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cell_id(cell: Cell) -> str:
    parts = (cell["section"], cell["size"], cell["gqa"], cell["quantity"], cell["scheme"], cell["counting"])
    return " ".join(filter(None, parts))


@functools.cache
def shape(size: str, gqa: str) -> Hyperparameters:
    """The model of a row; `without` gives every query head its own K and V."""
    hyper = load_catalog().model(f"qwen1.5-{size.lower()}").hyper
    return msgspec.structs.replace(hyper, n_head_kv=hyper.n_head) if gqa == "without" else hyper


@functools.cache
def counted(size: str, gqa: str) -> tuple[Parameters, KvCache]:
    model = build_model(shape(size, gqa), size)
    return count_parameters(model), kv_cache(model)


@functools.cache
def computed(size: str, gqa: str, quantity: str, scheme: str, counting: str) -> float | str:
    """What the functions give for a cell, in the unit of its column and rounded as it is printed."""
    hyper = shape(size, gqa)
    direct = {
        "vocab_size": hyper.n_vocab, "hidden_size": hyper.n_embd, "num_hidden_layers": hyper.n_layer,
        "intermediate_size": hyper.n_ff, "n_groups": hyper.n_head // hyper.n_head_kv,
    }  # fmt: skip
    if quantity in direct:
        return direct[quantity]
    parameters, kv = counted(size, gqa)
    counts = {
        "layer_params": parameters.layers_active, "lm_head_params": parameters.lm_head,
        "active_params": parameters.active, "total_params": parameters.total,
    }  # fmt: skip
    if quantity in counts:
        return round(counts[quantity] / GIB, 2)
    if quantity == "kv_params_1024":
        return kv.bytes_per_token / 2 * 1024 / MIB
    if quantity == "kv_params_per_token":
        return kv.bytes_per_token / 2 / MIB
    hardware = msgspec.structs.replace(hardware_of(parse_gpus("rtx-4090")[0]), memory_bytes=24 * GIB)
    assert hardware.memory_bytes and hardware.bandwidth_bytes_per_s and hardware.compute_flop_per_s
    bits = scheme_bits(scheme)
    assert bits is not None
    weights = uniform_weights(parameters, bits)
    if quantity == "n_ctx":
        return n_ctx_that_fits(hardware.memory_bytes, weights, kv) or "oom"
    line = decode_line(weights, kv, hardware.bandwidth_bytes_per_s)
    if quantity == "w_tokens_per_ms":
        assert line.w_tokens_per_ms is not None
        return round(line.w_tokens_per_ms)
    if quantity == "b_ms":
        return round(line.b_ms, 2)
    if counting == "rough":  # the output matrix is computed for every token, as a layer is
        layers = parameters.layers + parameters.lm_head
        weights = msgspec.structs.replace(
            weights, parameters=msgspec.structs.replace(parameters, layers=layers, lm_head=0)
        )
    curve = PrefillLimit(weights, kv, hardware.bandwidth_bytes_per_s, hardware.compute_flop_per_s, LONGEST)
    knees = curve.knees()
    assert len(knees) in (0, 2)
    return knees[quantity == "knee_second"] if knees else NO_KNEE


def printed(cell: Cell) -> float | str:
    return float(cell["value"]) if cell["value"] else cell["printed"].strip()


def got(cell: Cell) -> float | str:
    return computed(cell["size"], cell["gqa"], cell["quantity"], cell["scheme"], cell["counting"])


def test_every_cell_follows_from_the_functions() -> None:
    """Parameters, KV, lengths, W, B and knees of sections 3.1 to 5.2.5 come out as the article prints them."""
    follow = [cell for cell in read_cells() if not cell["exception"]]
    assert len(follow) > 300
    assert {cell_id(cell): got(cell) for cell in follow} == {cell_id(cell): printed(cell) for cell in follow}


def test_a_cell_with_a_reason_does_not_follow() -> None:
    for cell in (cell for cell in read_cells() if cell["exception"]):
        found, expected = got(cell), printed(cell)
        assert isinstance(found, int | float) and isinstance(expected, float)
        assert not math.isclose(found, expected), cell_id(cell)
        assert len(cell["exception"]) > 20
