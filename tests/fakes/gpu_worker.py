"""A worker whose weights lie on a GPU, and the machine that has it."""

from collections.abc import Iterator

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Request
from ggbench.engines.endings import Ending
from ggbench.engines.llama.config import LoadModel
from ggbench.engines.memory import Place
from ggbench.machine.records import Gpu
from ggbench.runs.session import RunContext
from tests.fakes.engine import obey

GPU = Gpu(0, "Card", "GPU-1", "00000000:41:00.0", 24 << 30, 23 << 30, 384, 10501, "580")
WORKER_PID = 1
"""Of the stand-in for the worker."""
CUDA = "using device CUDA0 (NVIDIA Card (x)) (0000:41:00.0) - 23000 MiB free"
PLACES = protocol.Devices({"CUDA0": Place.GPU, "CPU": Place.HOST, "CPU_Mapped": Place.HOST})


def on_gpu(request: Request) -> Iterator[protocol.Message | Ending]:
    """As a worker in good health whose weights lie on a GPU."""
    if isinstance(request, LoadModel):
        yield PLACES
        yield protocol.Log(2, f"load_tensors: {CUDA}")
        yield protocol.Log(2, "load_tensors: offloaded 3/3 layers to GPU")
        yield protocol.Log(2, "load_tensors:        CUDA0 model buffer size =   100.00 MiB")
    yield from obey(request)


def with_gpu(rig: RunContext) -> RunContext:
    environment = replace(rig.describe_environment({}), gpus=(GPU,))
    return replace(rig, describe_environment=lambda _: environment)
