"""A run's machine, server and command, and the state of the machine during the run."""

from __future__ import annotations

from ggbench.machine.records import Environment
from ggbench.runs.run import Run
from ggbench.show.run_figures import imported_text
from ggbench.show.words import say
from ggbench.stats.decode_timing import RARE, ServingFigures
from ggbench.text import sanitize
from ggbench.units import counted, format_bytes, format_count, format_ms, format_percent


def environment_facts(environment: Environment) -> list[tuple[str, str]]:
    """Return the software, the machine, and how it changed during a run."""
    versions = {
        "ggbench": environment.ggbench,
        "llama.cpp": environment.llama_cpp,
        "llama-cpp-python": environment.llama_cpp_python,
        "Python": environment.python,
        "server": environment.server,
        "Transformers": environment.transformers,
    }
    imported = environment.imported
    return [
        ("software", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
        ("system", environment.os),
        ("CPU", environment.cpu),
        ("cores", format_count(environment.n_cores) if environment.n_cores else ""),
        ("RAM", format_bytes(environment.ram_bytes) if environment.ram_bytes else ""),
        *(
            ("GPU", f"{gpu.name} {format_bytes(gpu.total_bytes)}, driver {gpu.driver}")
            for gpu in environment.gpus
        ),
        ("imported", f"{imported_text(environment)}, sha256 {imported.file_sha256}" if imported else ""),
        *(("changed", each) for each in environment.changes),
    ]


def serving_facts(run: Run) -> list[tuple[str, str]]:
    """Return the server's facts; none for a run without one."""
    serving: ServingFigures | None = getattr(run.result, "serving", None)
    if serving is None:
        return []
    draft = ""
    if serving.n_drafted:
        share = format_percent((serving.n_accepted or 0) / serving.n_drafted)
        draft = f"{share} of {format_count(serving.n_drafted)} drafted tokens accepted"
    chunks = ""
    if serving.n_tokens_together:
        is_rare = serving.n_tokens_together <= RARE * max(1, serving.n_tokens)
        key = "run.rare_chunks" if is_rare else "run.chunks"
        chunks = say(key, n_together=serving.n_tokens_together, n_tokens=serving.n_tokens)
    return [
        ("server", serving.server),
        ("at", run.setup.base_url or ""),
        ("clock", say(f"clock.{serving.clock}")),
        ("TTFT", "" if serving.ttft_ms is None else f"{format_ms(serving.ttft_ms)} ms"),
        ("chunks", chunks),
        ("speculation", draft),
        *(("not as asked", each) for each in serving.remarks),
    ]


def machine_text(environment: Environment | None) -> str:
    """Return `EPYC, 2 cores, 24.0 GiB, ggbench 0.1.0, llama.cpp 7000`; empty if unknown. Printable."""
    if environment is None:
        return ""
    versions = {"ggbench": environment.ggbench, "llama.cpp": environment.llama_cpp,
                "Transformers": environment.transformers}  # fmt: skip
    parts = [
        environment.cpu,
        counted(environment.n_cores, "core") if environment.n_cores else "",
        format_bytes(environment.ram_bytes) if environment.ram_bytes else "",
        *(gpu.name for gpu in environment.gpus),
        imported_text(environment),
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    return sanitize(", ".join(filter(None, parts)))


def reproducing(run: Run) -> str:
    """Return the command of a run; for an imported run, the command that shows it. Printable."""
    if run.head.command:
        return sanitize(run.head.command)
    return f"ggbench results show {run.run_id}"
