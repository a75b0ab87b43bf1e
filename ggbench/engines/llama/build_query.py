"""The child process of `build`: loads llama.cpp, with the RPC servers that its arguments name, and describes it."""

from __future__ import annotations

import os
import re
import sys

import msgspec

from ggbench.engines.llama.build import LlamaBuild, build_flags

_CPU_FEATURES = re.compile(r"\bCPU : (?P<features>[^:]*)(?: \||$)")
"""The CPU backend's part of `llama_print_system_info()`: `CUDA : ARCHS = 890 | CPU : AVX = 1 | AVX2 = 1 | `."""


def _cpu_features(system_info: str) -> tuple[str, ...]:
    found = _CPU_FEATURES.search(system_info)
    return tuple(re.findall(r"(\w+) = ", found["features"])) if found else ()


def _describe(servers: list[str]) -> LlamaBuild:
    """Load llama.cpp and query it; a server that cannot be used ends the process."""
    try:
        from ggbench.engines.llama.c_functions import binding_version, lib, llama_library
        from ggbench.engines.llama.defaults import CONTEXT, MODEL, field_changes
        from ggbench.engines.llama.ggml_devices import GgmlDevices, add_servers, build_commit
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return LlamaBuild(problem=f"{type(error).__name__}: {error}")
    lib.llama_backend_init()
    add_servers(llama_library(), servers)
    devices = GgmlDevices(llama_library())
    of_model, of_context = (
        field_changes(lib.llama_model_params, MODEL),
        field_changes(lib.llama_context_params, CONTEXT),
    )
    return LlamaBuild(
        llama_cpp_python=binding_version(),
        llama_cpp=lib.llama_version().decode(errors="replace"),
        commit=build_commit(llama_library()),
        build_flags=build_flags(llama_library()),
        features=_cpu_features(lib.llama_print_system_info().decode(errors="replace")),
        backends=devices.backends,
        devices=devices.described(),
        new_fields=(*of_model[0], *of_context[0]),
        gone_fields=(*of_model[1], *of_context[1]),
        interface_problem=devices.interface_problem,
    )


def main() -> None:
    """Write the description to stdout as JSON; output of the libraries goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(msgspec.json.encode(_describe(sys.argv[1:])))


if __name__ == "__main__":
    main()
