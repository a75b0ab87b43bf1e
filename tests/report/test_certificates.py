"""A certificate for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ggbench.records.machine import GpuProcess
from ggbench.records.memory import DeviceBuffers
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
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

    assert "desk[2Jtop (pid 911, 300.0 MiB), an unnamed process (pid 12)" in text
    assert "held by" not in render(certificate_details(alone), 160)
    assert certificate_document(held)["gpu_processes"] == [
        {"pid": 911, "name": "/opt/desk\x1b[2Jtop", "used_bytes": 300 << 20},
        {"pid": 12, "name": None, "used_bytes": None},
    ]


def test_memory_of_a_gpu_and_beside_it_are_told_apart(render: Callable[..., str]) -> None:
    """Half the layers on the GPU: the budget was the GPU's alone, so what lies in main memory is no part of it."""
    split = Certificate(
        model="m",
        quant="q4_k_m",
        file="f",
        provenance="file",
        outcome=Outcome.COMPLETED,
        max_n_ctx=512,
        buffers=(
            DeviceBuffers("CPU_Mapped", weight_bytes=3 << 30),
            DeviceBuffers("CPU", kv_bytes=1 << 30),
            DeviceBuffers("CUDA0", weight_bytes=2 << 30, kv_bytes=512 << 20, compute_bytes=300 << 20),
            DeviceBuffers("CUDA_Host", compute_bytes=16 << 20, output_bytes=1 << 20),
        ),
        kv_bytes=3 << 29,
        compute_bytes=316 << 20,
    )
    in_main_memory = replace(split, buffers=split.buffers[:2], compute_bytes=None)

    text = " ".join(render(certificate_details(split), 160).split())
    assert "weights 2.00 GiB, KV 512.0 MiB, compute 300.0 MiB on the GPU" in text
    assert "weights 3.00 GiB, KV 1.00 GiB, compute 16.0 MiB in main memory" in text
    text = " ".join(render(certificate_details(in_main_memory), 160).split())
    assert "weights 3.00 GiB, KV 1.50 GiB, compute —" in text
