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
    ggbench limits llama-3.1-8b --vram 24GiB --bandwidth 1008GB/s \\
      --compute 330TFLOPS --batch 1,8,32
    """,
)
@model_arguments
@option(
    "--gpu",
    "GPU, e.g. rtx-4090 or 24GiB@936GB/s. Default: the GPU of this machine.",
    metavar="NAME",
)
@option("--vram", "GPU memory, e.g. 24GiB. Default: that of --gpu.", metavar="SIZE")
@option("--bandwidth", "Memory bandwidth, e.g. 1008GB/s. Default: that of --gpu.", metavar="RATE")
@option("--compute", "FP16 rate, e.g. 82.58TFLOPS. Default: that of --gpu.", metavar="RATE")
@option("-ctk --type-k", "Type of the K cache.", default="f16")
@option("-ctv --type-v", "Type of the V cache.", default="f16")
@option("--batch batch_sizes", "Batch sizes, e.g. 1,8,32.", metavar="SIZES", default="1")
@output_options
def command(
    ref: ModelRef,
    gpu: str | None,
    vram: str | None,
    bandwidth: str | None,
    compute: str | None,
    type_k: str,
    type_v: str,
    batch_sizes: str,
    output: Output,
) -> None:
    """Show the theoretical limits of MODEL: context that fits, W and B of decode, time and knees of prefill.

    QUANTS are bits per weight (w16, w8, w4.5) or real quants (q4_k_m). Default: w16, w8, w6 and w4, or a file's own
    quant. Nothing is loaded or downloaded.

    --gpu takes cards by name or by size; --vram, --bandwidth and --compute describe any other. As in the source
    article, G is 2^30 and T is 2^40, and each prompt token reads all earlier KV.
    """
    from ggbench.gguf_file.ggml_types import type_by_name
    from ggbench.units import parse_batch_sizes

    hardware = _hardware(gpu, vram, bandwidth, compute)
    cache_types = type_by_name(type_k).name, type_by_name(type_v).name
    batches = parse_batch_sizes(batch_sizes)
    from ggbench.sizing.theory.kv_cache import kv_cache
    from ggbench.sizing.theory.limits import model_limits
    from ggbench.sizing.theory.weights import count_model

    counted = count_model(ref)
    kv = kv_cache(counted.file, *cache_types)
    rows = model_limits(counted.weights, kv, hardware, _LONGEST, batches)
    if output.as_json:
        from ggbench.show.limits import LIMITS, limits_record

        output.record(LIMITS, limits_record(counted, kv, hardware, rows))
        return
    from ggbench.show.limits import limits_answer

    output.answer(limits_answer(counted, kv, hardware, rows))


def _hardware(gpu: str | None, vram: str | None, bandwidth: str | None, compute: str | None) -> Hardware:
    """Return the data of the named GPU, or of this machine's, overridden by the given values."""
    import msgspec.structs

    from ggbench.machine.description import Device, parse_gpus
    from ggbench.machine.gpus import gpu_bandwidth, list_gpus
    from ggbench.sizing.theory.limits import Hardware, hardware_of
    from ggbench.units import parse_bandwidth, parse_compute, parse_size

    given: dict[str, object] = {}
    if vram is not None:
        given |= {"memory_bytes": parse_size(vram), "memory_source": "given"}
    if bandwidth is not None:
        given |= {"bandwidth_bytes_per_s": parse_bandwidth(bandwidth, binary=True), "bandwidth_source": "given"}
    if compute is not None:
        given |= {"compute_flop_per_s": parse_compute(compute), "compute_source": "given"}
    devices = [] if gpu is None else list(parse_gpus(gpu))
    if len(devices) > 1:
        raise UsageError("limits are those of one GPU", "name one; ggbench plan counts several")
    if gpu is None and not given:  # unknown without a GPU: measuring would take too long
        devices = [
            Device(each.name, each.total_bytes or 0, "NVML", gpu_bandwidth(each)) for each in list_gpus()
        ]
    found = hardware_of(devices[0]) if devices else Hardware("a machine as described")
    return msgspec.structs.replace(found, **given)
