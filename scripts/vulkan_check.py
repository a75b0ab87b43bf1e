"""llama.cpp's Vulkan backend without a GPU: builds it, runs the tests marked `vulkan`, prints one report.

Mesa's software driver, llvmpipe, computes on the CPU, so no speed in the report means anything. What llama.cpp places
on the device, allocates there and logs, how it ends when memory runs out, and all that ggbench makes of it, is real.

Needed are cmake, a C++ compiler, and on Debian and Ubuntu: apt install mesa-vulkan-drivers glslc libvulkan1
spirv-headers libvulkan-dev. If libvulkan-dev is too old for llama.cpp, as Debian 12's, unpack a newer one into a
folder, `dpkg-deb -x FILE FOLDER`, and name it: --headers FOLDER/usr/include. The source is that of the pinned
llama-cpp-python, so that its bindings fit. The build takes a quarter of an hour on two cores, and is kept in ggbench's
cache folder.

The same build serves ggbench itself:

  LLAMA_CPP_LIB_PATH=FOLDER GGML_VK_VISIBLE_DEVICES=0 ggbench decode MODEL QUANT     --build-only prints the FOLDER

Exit code: 0 if every test passed, 1 if one failed or was skipped, 2 if something is missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ggbench import paths
from ggbench.engines.llama.build import describe_llama_build
from scripts import gpu_check
from scripts.gpu_report import report_text
from scripts.llama_source import ROOT, compile_llama, pinned_llama

CACHE = paths.caches_dir() / "vulkan"
TARGETS = ("llama", "ggml-cpu", "ggml-rpc", "ggml-vulkan")
DRIVER_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    options = parse(words)
    if options.show:
        try:
            print(report_text(gpu_check.read_report(options.show)))
        except gpu_check.Missing as error:
            print(f"Error: {error.args[0]}\nHint: {error.args[1]}", file=sys.stderr)
            return 2
        return 0
    build = options.build.resolve() / pinned_llama().replace("==", "-")
    library = build / "bin"
    is_built = (build / "ready").exists()
    if missing := list(missing_parts(options.headers, runs_only=is_built)):
        print("\n".join(f"Error: {what}\nHint: {to_do}" for what, to_do in missing), file=sys.stderr)
        return 2
    if not is_built:
        arguments = cmake_arguments(options.headers)
        compile_llama(build, TARGETS, arguments, options.jobs, options.sdist)
        (library / "build_flags.txt").write_text(" ".join(arguments), encoding="utf-8")  # runs store it
    if options.build_only:
        print(library)
        return 0
    installed = describe_llama_build().commit
    os.environ |= {"LLAMA_CPP_LIB_PATH": str(library), "GGML_VK_VISIBLE_DEVICES": "0"}
    built = describe_llama_build()
    if built.problem or built.commit.removesuffix("-dirty") != installed.removesuffix("-dirty"):
        what = built.problem or f"its commit is {built.commit}, that of the bindings {installed}"
        print(
            f"Error: {library} cannot be used: {what}\nHint: delete {build} to build it again", file=sys.stderr
        )
        return 2
    device = next((each for each in built.devices if each.backend == "Vulkan"), None)
    if device is None:
        print(
            "Error: llama.cpp lists no Vulkan device\nHint: vulkaninfo --summary names the drivers",
            file=sys.stderr,
        )
        return 2
    report_folder = (options.report or build).resolve()
    report_folder.mkdir(parents=True, exist_ok=True)
    sections = {
        "device": {"name": device.name, "description": device.description, "backend": device.backend},
        "build": {
            "llama_cpp_python": built.llama_cpp_python,
            "commit": built.commit,
            "backends": ", ".join(built.backends),
            "flags": built.build_flags,
        },
    }
    environ = {"GGBENCH_VULKAN_LIB": str(library)}
    return gpu_check.run_tests(
        Path(sys.executable), "vulkan", build / "twins", report_folder, options.only, environ, sections
    )


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/vulkan_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder: dict[str, Any] = {"type": Path, "metavar": "FOLDER"}
    parser.add_argument("--build", **folder, default=CACHE, help="kept between runs (default: ggbench's cache)")
    parser.add_argument("--headers", **folder, help="has vulkan/vulkan_core.h (default: the system's)")
    parser.add_argument(
        "--sdist", type=Path, metavar="FILE", help=f"of {pinned_llama()}, else downloaded by pip"
    )
    parser.add_argument("--report", **folder, help="for report.txt and report.json (default: with the build)")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests to run, as pytest's -k takes them")
    parser.add_argument("--build-only", action="store_true", help="stop once it is built, and print its folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a report.json again")
    return parser.parse_args(words)


def missing_parts(headers: Path | None, *, runs_only: bool) -> Iterator[tuple[str, str]]:
    """Yield what is not installed of what the build needs, or of what only running it needs; and what to do."""
    if not any(drivers()):
        yield (
            f"no Vulkan driver in {', '.join(DRIVER_FOLDERS)}",
            "on Debian and Ubuntu: apt install mesa-vulkan-drivers",
        )
    if not runs_only:
        for line in of_set_up("missing_for vulkan", headers).splitlines():
            what, _, to_do = line.partition("|")
            yield what, to_do


def of_set_up(function: str, headers: Path | None) -> str:
    """Return what a function of scripts/backends.sh prints, as scripts/setup would call it."""
    given = {"CMAKE_ARGS": f"-DVulkan_INCLUDE_DIR={headers.resolve()}"} if headers else {}
    words = ["bash", "-c", f". scripts/backends.sh; {function}"]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, **given}, stdout=subprocess.PIPE, text=True
    ).stdout


def drivers() -> Iterator[Path]:
    """Yield the files that name a driver: those of the loader's variables, else those of its usual folders."""
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        if given := os.environ.get(variable):
            yield from (path for path in map(Path, given.split(os.pathsep)) if path.exists())
            return
    for folder in DRIVER_FOLDERS:
        yield from Path(folder).glob("*.json")


def cmake_arguments(headers: Path | None) -> list[str]:
    """Return the options of a build with Vulkan, of libraries alone, which find each other in any folder."""
    return [
        *of_set_up("backend_args vulkan", headers).split(),
        *([f"-DVulkan_INCLUDE_DIR={headers.resolve()}"] if headers else []),
        "-DGGML_RPC=on",
        "-DLLAMA_BUILD_COMMON=OFF",
        "-DLLAMA_BUILD_TOOLS=OFF",
        "-DLLAMA_BUILD_SERVER=OFF",
        "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
    ]


if __name__ == "__main__":
    sys.exit(main())
