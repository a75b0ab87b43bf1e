"""Documents of this machine, and of machines that compute together."""

from ggbench.decisions.doctor.checkup import Checkup
from ggbench.decisions.doctor.findings import Finding
from ggbench.engines.llama.build import LlamaBuild
from ggbench.engines.llama.rpc_probe import ServerProbe
from ggbench.engines.llama.rpc_serving import Serving
from ggbench.machine.condition import GpuDriver, GpuState
from ggbench.sizing.cluster import ClusterPlan
from tests.schemas.shapes import Fields, Struct, about, by, many, of, struct

_DOTTED = about(str | None, "Such as `12.4`; null where it is unknown.")
_LLAMA = struct(
    "LlamaCpp",
    "The llama.cpp that ggbench uses.",
    of(LlamaBuild, "is_installed problem llama_cpp_python llama_cpp commit backends devices"),
    {
        "features": about(by(by(str)), "What each backend was compiled with, by llama.cpp's names."),
        "missing_instructions": about(many(str), "That this CPU has and the build does not use."),
        "cuda_version": _DOTTED,
    },
)
_GPU = struct("DriverGpu", "", of(GpuState, "gpu processes throttle"), {"compute_capability": _DOTTED})
_DRIVER = struct(
    "Driver",
    "NVIDIA's driver.",
    of(GpuDriver, "version problem n_visible"),
    {"cuda_version": _DOTTED, "gpus": many(_GPU)},
)
_DOCTOR: Fields = {
    "findings": about(many(Finding), "What to change, problems first."),
    **of(Checkup, "ggbench python os"),
    "llama_cpp": _LLAMA,
    **of(Checkup, "cpu memory"),
    "gpu_driver": _DRIVER,
    **of(Checkup, "places store hub calibration"),
}


def documents() -> dict[str, Struct]:
    """Return the documents by the names in their `schema`."""
    serve = {**of(Serving), "pid": about(int, "Of the process that serves.")}
    return {
        "doctor": struct("Document", "What ggbench sees of this machine, and what to do about it.", _DOCTOR),
        "cluster.serve": struct("Document", "A server that answers; the command goes on until it is ended.", serve),
        "cluster.probe": struct("Document", "RPC servers that were asked.", {"servers": many(ServerProbe)}),
        "cluster.plan": struct(
            "Document", "The best split of each quant over the machines.", {"model": str, "plans": many(ClusterPlan)}
        ),
    }
