"""scripts/gpu_check on a machine without a GPU: llama.cpp's real CUDA backend, over stand-ins that count memory.

The stand-ins (tests/fakes/cuda) take the place of CUDA's runtime, its driver, cuBLAS and NVML. They compute nothing, so
no speed in the report means anything, and its device is called "Stand-in GPU". What llama.cpp allocates, what it logs,
how it ends when memory runs out, and all that ggbench makes of that, is real.

It needs what gpu_check needs but the GPU and its driver: CUDA 13's compiler, cuBLAS's headers (of the toolkit, or pip's
nvidia-cublas), and the folder of wheels that `scripts/gpu_check --prepare` makes. The first build takes most of an hour
on two cores; --build keeps it. Behind `--` a ggbench command takes the place of the check, as

  scripts/gpu_rehearsal --wheels wheels --memory-mib 24564 -- maxctx twin:qwen1.5-7b q4_k_m --flash-attn off --no-prove

Exit code: that of gpu_check, or of the command.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import gpu_check  # noqa: E402 - found through the line above
from scripts.cuda_toolkit import CudaToolkit, find_toolkit  # noqa: E402

SOURCES = ROOT / "tests/fakes/cuda"
CUDA_MAJOR = "13"
"""The stand-ins have the functions that a library built with this CUDA asks for."""
NVIDIA_SMI = (
    "Stand-in GPU, GPU-00000000-0000-0000-0000-000000000000, 00000000:00:00.0, 0.0 stand-in, 9.0, {mib} MiB"
)


def main() -> int:
    """Make the stand-ins, then run gpu_check over them."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_rehearsal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--wheels", type=Path, required=True, metavar="FOLDER", help="what gpu_check --prepare made"
    )
    parser.add_argument(
        "--build", type=Path, metavar="FOLDER", default=ROOT / ".gpu_check", help="kept between runs"
    )
    parser.add_argument(
        "--gpus", type=int, default=1, choices=range(1, 5), help="how many devices (default: 1)"
    )
    parser.add_argument("--memory-mib", type=int, default=81920, metavar="MIB", help="of each (default: 81920)")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests to run, as pytest's -k takes them")
    parser.add_argument(
        "command", nargs="*", metavar="ARGS", help="a ggbench command to run in place of the check, after --"
    )
    options = parser.parse_args()
    toolkit, compiler = find_toolkit(), shutil.which("cc")
    if toolkit is None or compiler is None or toolkit.version.partition(".")[0] != CUDA_MAJOR:
        print(f"Error: CUDA {CUDA_MAJOR}'s nvcc and a C compiler are needed", file=sys.stderr)
        return 2
    folder = options.build.resolve() / "stand-ins"
    try:
        make_stand_ins(folder, compiler, toolkit)
    except subprocess.CalledProcessError:
        print(
            f"Error: the stand-ins in {SOURCES} do not compile; the compiler's message is above",
            file=sys.stderr,
        )
        return 2
    environ = environment(folder, options.memory_mib, options.gpus)
    check = [
        sys.executable,
        ROOT / "scripts/gpu_check.py",
        "--wheels",
        options.wheels,
        "--build",
        options.build,
    ]
    if options.command:
        built = subprocess.run([*check, "--build-only"], env=environ).returncode
        python = gpu_check.venv_folder(options.build.resolve()) / "bin/python"
        run = [python, "-m", "ggbench", *options.command]
        return built or subprocess.run(run, env={**environ, "PYTHONPATH": str(ROOT)}).returncode
    only = ["--only", options.only] if options.only else []
    return subprocess.run([*check, "--report", options.build / "rehearsal", *only], env=environ).returncode


def make_stand_ins(folder: Path, compiler: str, toolkit: CudaToolkit) -> None:
    """Compile the libraries under the names that llama.cpp's and pynvml's loaders ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{path}" for path in (toolkit.root / "include", *toolkit.include_folders)]
    compile_library(compiler, "driver", folder / "libcuda.so.1", includes)
    compile_library(compiler, "nvml", folder / "libnvidia-ml.so.1", includes)
    for source, name in (("runtime", "libcudart"), ("cublas", "libcublas")):
        target = folder / f"{name}.so.{CUDA_MAJOR}"
        versions = folder / f"{name}.map"  # CUDA's libraries name the version of their symbols after themselves
        versions.write_text(f"{target.name} {{ global: *; }};\n", encoding="ascii")
        compile_library(compiler, source, target, [*includes, f"-Wl,--version-script={versions}"])


def compile_library(compiler: str, source: str, target: Path, options: list[str]) -> None:
    """One of the stand-ins. Raises CalledProcessError."""
    flags = ["-O1", "-Wall", "-Wno-unused", "-shared", "-fPIC", f"-Wl,-soname,{target.name}"]
    subprocess.run([compiler, *flags, *options, "-o", target, SOURCES / f"{source}.c"], check=True)


def environment(folder: Path, memory_mib: int, n_gpus: int = 1) -> dict[str, str]:
    """In which the stand-ins are found before anything real, and every device has that much memory."""
    smi = folder / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho '{NVIDIA_SMI.format(mib=memory_mib)}'\n", encoding="ascii")
    smi.chmod(0o755)
    device = folder / "device"
    device.unlink(missing_ok=True)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH", "")])),
        "STAND_IN_GPU_FILE": str(device),
        "STAND_IN_GPU_MIB": str(memory_mib),
        "STAND_IN_GPUS": str(n_gpus),
    }


if __name__ == "__main__":
    sys.exit(main())
