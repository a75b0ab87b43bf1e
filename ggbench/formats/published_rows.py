"""Tests of llama-bench as rows of the published data: what others can compare, and nothing personal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from ggbench.errors import UsageError
from ggbench.formats.llama_bench import BenchRow
from ggbench.gguf_file.quants import canonical_quant, name_without_quant, plain_quant, quant_from_words
from ggbench.machine.known_devices import recognize_device
from ggbench.models.published.benches import BenchedRow
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.store.runs import utc_text

_BACKENDS = {"MTL": "Metal", "HIP": "ROCm", "BLAS": "CPU"}
_MODEL_TYPE = re.compile(
    r"(?P<model>.+?) (?:mostly )?(?P<words>(?:all )?[A-Z0-9_]+(?: - (?:Small|Medium|Large|[\d.]+ bpw))?)"
)
_STATED = ("n_gpu_layers", "n_cpu_moe", "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn",
           "split_mode")  # fmt: skip


def rows_to_publish(run: Run, tests: Sequence[BenchRow]) -> list[BenchedRow]:
    """Return the longest decodes of a run, else its prompts, dated by the month of the run. Raises UsageError."""
    environment, month = run.environment, utc_text(run.head.started_at)[:7]
    gpus = [device_id(gpu.name, gpu.total_bytes) for gpu in environment.gpus] if environment else []
    longest = max(row.n_gen for row in tests)
    rows = [row.named(model_type=row.text("model_type") or _model_type(run.subject)) for row in tests]
    return [
        published_row(row, gpus if row.text("gpu_info") else [row.text("cpu_info")], source="", date=month)
        for row in rows
        if row.n_gen == longest
    ]


def _model_type(subject: Subject) -> str:
    """Return `qwen3moe Qwen3 30B A3B Q4_K_M` for a file of a llama-server, which names no type; empty for a URL."""
    name = name_without_quant(PurePath(subject.file).name).replace("-", " ")
    return f"{subject.architecture} {name} {plain_quant(subject.quant).upper()}" if subject.file else ""


def published_row(row: BenchRow, devices: Sequence[str], *, source: str, date: str) -> BenchedRow:
    """Return a test as a published row; `devices` has an id or a name for each.

    Raises UsageError if the names of model and backend are not llama.cpp's.
    """
    model, quant = split_model_type(row.text("model_type"))
    backend = re.split(r"[,+ ]", row.text("backends"))[0]
    if not quant or not backend:
        raise UsageError(
            f"model {row.text('model_type')!r} or backend {row.text('backends')!r} is not llama-bench's",
            "measure a file on this disk, or with llama-bench",
        )
    stated: dict[str, Any] = {name: row.fields[name] for name in _STATED if name in row.fields}
    number, commit = row.integer("build_number"), row.text("build_commit")
    used = row.text("devices").count("/") + 1
    return BenchedRow(
        source=source,
        device=device_id(devices[0], None),
        count=len(devices)
        if row.text("devices") in ("", "auto") and row.text("split_mode") != "none"
        else used,
        backend=_BACKENDS.get(backend, backend),
        model=model,
        quant=quant,
        weight_bytes=row.integer("model_size") or None,
        n_params=row.integer("model_n_params") or None,
        test=row.test.partition(" ")[0],
        n_depth=row.n_depth,
        tok_s=round(row.number("avg_ts"), 2),
        stddev=round(row.number("stddev_ts"), 2) if len(row.samples_ns) != 1 else None,
        build=f"b{number}" if number > 1 else commit.removeprefix("unknown") or None,
        date=date,
        **stated,
    )


def split_model_type(model_type: str) -> tuple[str, str]:
    """Return model and quant of llama-bench's `qwen3moe 30B.A3B Q4_K - Medium`; the quant is empty if it has none."""
    found = _MODEL_TYPE.fullmatch(model_type.strip().removesuffix(" MoE"))
    if found is None:
        return model_type.strip(), ""
    words, _, size = found["words"].partition(" - ")
    quant = canonical_quant(words) if size.endswith("bpw") else quant_from_words(found["words"])
    return found["model"], quant


def device_id(name: str, memory_bytes: int | None) -> str:
    """Return the id of a known device, given its id or a driver's name of it, else the name without trademarks."""
    plain = " ".join(re.sub(r"\((?:R|TM)\)", "", name, flags=re.IGNORECASE).split())
    found = recognize_device(plain, memory_bytes)
    return found.id if found else plain
