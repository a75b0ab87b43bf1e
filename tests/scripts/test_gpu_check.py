"""scripts/gpu_check as far as it goes without a GPU. What a tool prints is made up unless a source is named."""

import dataclasses
import io
import json
import os
import shlex
import tarfile
from pathlib import Path

import pytest

from scripts import gpu_check
from scripts.cuda_toolkit import CudaToolkit
from scripts.gpu_report import report_text

NVIDIA_SMI = """\
NVIDIA H200, GPU-cb3dfa52-e2f3-9ca4-a399-7d16041c3732, 00000000:03:00.0, 550.90.12, 9.0, 143771 MiB
NVIDIA GeForce RTX 5090, GPU-ea2294a3-4d61-1757-8aed-f91723f16ad2, 00000000:02:00.0, 570.124.06, 12.0, 32607 MiB
"""
"""What two cards answered, each on a machine of its own, as one answer to DEVICE_QUERY.

Source: https://github.com/thamada/gls at c0bed08d and 5d64b880, gls/{H200,RTX5090}_{smi,deviceQuery}.py.
"""
DEVICE = gpu_check.Device(
    "NVIDIA H200", "GPU-cb3dfa52-e2f3-9ca4-a399-7d16041c3732", "00000000:03:00.0", "550.90.12", "9.0", "143771 MiB"
)


def test_devices_are_read_from_nvidia_smi() -> None:
    h200, rtx_5090 = gpu_check.parse_devices(NVIDIA_SMI)
    assert h200 == DEVICE
    assert (rtx_5090.name, rtx_5090.compute_capability) == ("NVIDIA GeForce RTX 5090", "12.0")
    assert rtx_5090.architecture == "120-real"
    for no_device in ("No devices were found\n", "Failed to initialize NVML: Driver/library version mismatch\n"):
        assert gpu_check.parse_devices(no_device) == []


def test_a_machine_without_a_gpu_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--wheels", str(tmp_path), "--build", str(tmp_path / "build")]
    assert gpu_check.main(words) == 2
    assert "nvidia-smi" in capsys.readouterr().err
    make_tool(tmp_path / "nvidia-smi", "echo No devices were found; exit 6")
    assert gpu_check.main(words) == 2
    assert "No devices were found" in capsys.readouterr().err
    assert not (tmp_path / "build").exists()
    monkeypatch.setattr(gpu_check, "find_device", lambda: DEVICE)
    assert gpu_check.main(words) == 2  # before anything is built
    assert f"no wheels in {tmp_path}\nHint: make that folder with --prepare" in capsys.readouterr().err


def make_tool(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_a_build_is_kept_and_one_for_another_gpu_is_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels, build = tmp_path / "wheels", tmp_path / "build"
    wheels.mkdir()
    (wheels / "llama_cpp_python-0.3.36.tar.gz").write_bytes(b"source")
    toolkit = CudaToolkit("/opt/cuda/bin/nvcc", Path("/opt/cuda"), "12.8", cublas=tmp_path / "cublas")
    calls: list[tuple[str, ...]] = []

    def pip(_: Path, *words: str | Path, env: dict[str, str] | None = None) -> int:
        calls.append(tuple(map(str, words)))
        if words[0] == "wheel":
            assert env is not None and "-DGGML_CUDA=on" in env["CMAKE_ARGS"]
            (parts,) = (word for word in shlex.split(env["CMAKE_ARGS"]) if "PROJECT_llama_cpp_INCLUDE" in word)
            assert Path(parts.partition("=")[2]).is_file()
            assert env["CPATH"].split(os.pathsep)[0] == str(tmp_path / "cublas/include")
            assert "--no-cache-dir" in words  # pip's cache would hand one GPU's build to another
            folder = Path(calls[-1][calls[-1].index("--wheel-dir") + 1])
            folder.mkdir(parents=True)
            (folder / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl").write_bytes(b"wheel")
        return 0

    monkeypatch.setattr(gpu_check, "pip", pip)
    python = build / "venv/bin/python"
    first = gpu_check.build_llama(python, DEVICE, toolkit, wheels, build, jobs=2)
    again = gpu_check.build_llama(python, DEVICE, toolkit, wheels, build, jobs=2)
    other = dataclasses.replace(DEVICE, compute_capability="8.9")
    gpu_check.build_llama(python, other, toolkit, wheels, build, jobs=2)

    assert [call[0] for call in calls] == ["wheel", "install", "install", "wheel", "install"]
    assert all("--no-index" in call for call in calls)
    assert (first["cuda"], first["llama_cpp_python"], again["seconds"]) == ("12.8", "0.3.36", None)
    assert first["seconds"] is not None


def test_the_source_is_trimmed_to_what_the_build_reads(tmp_path: Path) -> None:
    kept = ["p-1/CMakeLists.txt", "p-1/vendor/llama.cpp/src/models/a.cpp"]
    dropped = ["p-1/.git/modules/x", "p-1/vendor/llama.cpp/models/v.gguf"]
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as whole:
        for name in [*kept, *dropped]:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            whole.addfile(member, io.BytesIO(name.encode()))

    gpu_check.trim(tmp_path / "whole.tar.gz", tmp_path / "trimmed.tar.gz")

    with tarfile.open(tmp_path / "trimmed.tar.gz") as trimmed:
        assert trimmed.getnames() == kept
        file = trimmed.extractfile(kept[0])
        assert file is not None and file.read() == kept[0].encode()


DOCUMENT = {
    "schema": "ggbench.gpu_check/1",
    "taken_at": "2026-11-21T14:00:00Z",
    "device": {"name": "A Made-Up GPU", "compute_capability": "9.0"},
    "machine": {"cpu_count": 16, "os": "Linux", "python": "3.12.3"},
    "build": {"cuda": "12.8", "wheel_bytes": 52_428_800, "seconds": None},
    "pieces": [{"title": "decode, made up", "facts": {"b_ms": 3.25, "b_share_ratio": 0.815, "w_tokens_per_ms": None}}],
    "tests": [
        {"name": "test_good[q8_0]", "outcome": "passed", "seconds": 12.5, "reason": ""},
        {"name": "test_bad", "outcome": "failed", "seconds": 0.25, "reason": "assert\x1b[31m 1 == 2\nmore"},
    ],
    "pytest_status": 1,
}


def test_the_report_says_what_was_seen_and_leaves_out_what_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(DOCUMENT))

    assert gpu_check.main(["--show", str(file)]) == 0

    text = capsys.readouterr().out
    assert text == report_text(DOCUMENT) + "\n"
    lines = [" ".join(line.split()) for line in text.splitlines()]
    said = {"wheel 50.0 MiB", "b 3.25 ms", "b share 82 %", "tests: 1 passed, 1 failed (pytest ended with 1)"}
    assert said <= set(lines)
    assert not any("w " in line[:3] or "seconds" in line for line in lines)
    assert "\x1b" not in text


def test_a_report_that_is_not_there_is_an_error_and_one_without_tests_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text("{")
    for name in ("nope.json", "report.json"):
        assert gpu_check.main(["--show", str(tmp_path / name)]) == 2
        assert "report.json of an earlier check" in capsys.readouterr().err
    assert "none ran (pytest ended with 5)" in report_text({**DOCUMENT, "tests": [], "pytest_status": 5})
