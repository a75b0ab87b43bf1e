"""`ggbench limits`: the theoretical limits of a model on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import model_arguments, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.models.reference import ModelRef
    from ggbench.sizing.theory.limits import Hardware


_LONGEST = 131_072
"""Tokens of the longest prompt."""


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench limits qwen2.5-32b q4_k_m q3_k_m --gpu rtx-4090
    ggbench limits qwen1.5-7b w16 w8 w4 --gpu rtx-4090 --why
    ggbench limits llama-3.1-8b --gpu 24GiB@1008GB/s --compute 330TFLOPS
    """,
)
@model_arguments
@option(
    "--gpu",
    "GPU, e.g. rtx-4090 or 24GiB@936GB/s. Default: the GPU of this machine.",
    metavar="NAME",
)
@option("--compute", "FP16 rate, e.g. 82.58TFLOPS. Default: that of --gpu.", metavar="RATE")
@option("-ctk --type-k", "Type of the K cache.", default="f16")
@option("-ctv --type-v", "Type of the V cache.", default="f16")
@output_options
def command(
    ref: ModelRef,
    gpu: str | None,
    compute: str | None,
    type_k: str,
    type_v: str,
    output: Output,
) -> None:
    """Show the theoretical limits of MODEL: context that fits, W and B of decode, time and knees of prefill.

    QUANTS are bits per weight (w16, w8, w4.5) or real quants (q4_k_m). Default: w16, w8, w6 and w4, or a file's own
    quant. Nothing is loaded or downloaded.

    --gpu takes cards by name, or 24GiB@936GB/s with --compute for any other. As in the source article, G is
    2^30 and T is 2^40, and each prompt token reads all earlier KV.
    """
    from ggbench.gguf_file.ggml_types import type_by_name
    from ggbench.show.limits import LIMITS, limits_answer, limits_record
    from ggbench.sizing.theory.kv_cache import kv_cache
    from ggbench.sizing.theory.limits import model_limits
    from ggbench.sizing.theory.weights import count_model

    hardware = _hardware(gpu, compute)
    cache_types = type_by_name(type_k).name, type_by_name(type_v).name
    counted = count_model(ref)
    kv = kv_cache(counted.file, *cache_types)
    rows = model_limits(counted.weights, kv, hardware, _LONGEST)
    record = limits_record(counted, kv, hardware, rows)
    output.either(LIMITS, record, limits_answer(counted, kv, hardware, rows))


def _hardware(gpu: str | None, compute: str | None) -> Hardware:
    """Return the data of the named GPU, or of this machine's, with the given rate of computing."""
    import msgspec.structs

    from ggbench.machine.description import Device, parse_gpus
    from ggbench.machine.gpus import gpu_bandwidth, list_gpus
    from ggbench.sizing.theory.limits import Hardware, hardware_of
    from ggbench.units import parse_compute

    if gpu is None:  # unknown without a GPU: measuring would take too long
        devices = [
            Device(each.name, each.total_bytes or 0, "NVML", gpu_bandwidth(each)) for each in list_gpus()
        ]
    else:
        devices = [*parse_gpus(gpu)]
        if len(devices) > 1:
            raise UsageError("limits are those of one GPU", "name one; ggbench plan counts several")
    found = hardware_of(devices[0]) if devices else Hardware("this machine")
    if compute is None:
        return found
    return msgspec.structs.replace(found, compute_flop_per_s=parse_compute(compute), compute_source="given")
