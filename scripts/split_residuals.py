"""The table behind scripts/split_residuals; exit code 1 where a residual is above 1 MiB.

llama.cpp splits a model over RPC devices as over cards. The plan is for two described devices; the real buffers are in
the log of a load over two RPC servers that each compute on this machine's CPU.
"""

from __future__ import annotations

import contextlib
import sys

from msgspec.structs import replace

from ggbench.engines.contract import Source, launch_engine
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated, DeviceBuffers
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.reference import parse_model
from ggbench.models.targets import materialize, resolve
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import DeviceMemory, PlannedDevice
from ggbench.units import GIB, MIB
from tests.fakes.rpc_server import serving

PARTS = {"weights": "weight_bytes", "KV": "kv_bytes", "compute": "compute_bytes"}
CASES = {
    ("qwen1.5-0.5b", "q4_k_m"): {
        "-c 4096 -ts 1,1": LlamaConfig(n_ctx=4096, tensor_split=(1, 1)),
        "-c 16384 -ts 1,3": LlamaConfig(n_ctx=16384, tensor_split=(1, 3)),
        "-ctk q8_0 -ctv q8_0": LlamaConfig(n_ctx=4096, type_k="q8_0", type_v="q8_0"),
        "-fa off": LlamaConfig(n_ctx=4096, flash_attn="off"),
        "-ngl 14": LlamaConfig(n_ctx=4096, n_gpu_layers=14),
    },
    ("gemma-3-1b", "q4_k_m"): {
        "-c 8192 -ts 1,1": LlamaConfig(n_ctx=8192, tensor_split=(1, 1)),
        "--swa-full": LlamaConfig(n_ctx=8192, swa_full=True),
    },
    ("qwen3-0.6b", "q8_0"): {
        "-c 8192 -ts 2,1": LlamaConfig(n_ctx=8192, tensor_split=(2, 1)),
        "-ub 1024 -b 1024": LlamaConfig(n_ctx=8192, n_batch=1024, n_ubatch=1024),
    },
    ("qwen1.5-moe-a2.7b", "q2_k"): {"-c 4096": LlamaConfig(n_ctx=4096)},
}


def main() -> int:
    print("MiB on each device: planned, less what was allocated")
    print("| model | quant | options | device |" + "".join(f" {part} | residual |" for part in PARTS))
    print("|---|---|---|---|" + "---:|---:|" * len(PARTS), flush=True)
    within = True
    for (model, quant), setups in CASES.items():
        file = materialize(resolve(parse_model(f"twin:{model}", quant))[0])
        for options, setup in setups.items():
            asked = replace(setup, threads=1)
            found, real = planned(file, asked), loaded(file, asked)
            for number, (device, buffers) in enumerate(zip(found, real, strict=False)):
                cells = [(getattr(device, field), getattr(buffers, field)) for field in PARTS.values()]
                within &= all(abs(plan - there) <= MIB for plan, there in cells)
                texts = "".join(f" {plan / MIB:.2f} | {(plan - there) / MIB:+.3f} |" for plan, there in cells)
                print(f"| {model} | {quant} | {options} | {number} |{texts}", flush=True)
    return 0 if within else 1


def planned(file: ModelFile, setup: LlamaConfig) -> tuple[PlannedDevice, ...]:
    devices = tuple(DeviceMemory(f"RPC{number}", 8 * GIB, backend="RPC") for number in range(2))
    with DryAllocator(launch_engine(setup), setup, devices) as dry:
        dry.load(read_model_file(file.paths[0]), file.paths[0])
        context = dry.context(setup.n_ctx or 0)
        return Placement(file, setup, devices).planned(context)


def loaded(file: ModelFile, setup: LlamaConfig) -> list[DeviceBuffers]:
    """Return the buffers of both servers, in llama.cpp's order."""
    with serving(8 * GIB) as one, serving(8 * GIB) as other, contextlib.closing(launch_engine(setup)) as engine:
        addresses = one.address, other.address
        *events, ending = engine.open(Source(file.paths[0]), replace(setup, rpc_servers=addresses))
    if not isinstance(ending, Completed):
        raise SystemExit(f"llama.cpp did not load it: {ending}")
    buffers = [event for event in events if isinstance(event, Allocated)][-1].buffers
    by_name = {each.device: each for each in buffers}
    return [by_name[f"RPC0[{address}]"] for address in addresses]


if __name__ == "__main__":
    sys.exit(main())
