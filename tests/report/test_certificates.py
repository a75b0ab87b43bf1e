"""A certificate for people and for programs."""

from __future__ import annotations

from collections.abc import Callable

from ggbench.machine_records import GpuProcess
from ggbench.records import Certificate, Outcome
from ggbench.report.certificate_document import certificate_document
from ggbench.report.terminal.certificates import certificate_details


def test_who_held_the_gpus_memory_is_told(render: Callable[..., str]) -> None:
    """Beside what no buffer explains, without the control characters of a name; nobody is no line."""
    processes = (GpuProcess(911, "/opt/desk\x1b[2Jtop", 300 << 20), GpuProcess(12, None, None))
    held = Certificate(
        model="m",
        quant="q4_k_m",
        file="f",
        provenance="file",
        outcome=Outcome.COMPLETED,
        max_n_ctx=512,
        peak_bytes=5 << 30,
        other_bytes=1 << 30,
        gpu_processes=processes,
    )
    alone = Certificate(model="m", quant="q", file="f", provenance="file", outcome=Outcome.COMPLETED, max_n_ctx=512)

    text = " ".join(render(certificate_details(held), 160).split())

    assert "desk[2Jtop (pid 911, 300.0 MiB), a program without a name (pid 12)" in text
    assert "held by" not in render(certificate_details(alone), 160)
    assert certificate_document(held)["gpu_processes"] == [
        {"pid": 911, "name": "/opt/desk\x1b[2Jtop", "used_bytes": 300 << 20},
        {"pid": 12, "name": None, "used_bytes": None},
    ]
