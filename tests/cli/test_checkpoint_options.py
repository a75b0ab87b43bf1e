"""Options of Transformers on the command line: what they go with, and what is refused in one line."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from ggbench.errors import ExitCode
from tests.cli.conftest import Run
from tests.fakes.checkpoints import QWEN2_TINY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN2_TINY))
    return folder


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"torch": "2.13.0", "transformers": "5.23.0", "accelerate": "1.15.0", "safetensors": "0.8.0"}
    real = metadata.version

    def version(name: str) -> str:
        if name not in found and name in ("torch", "transformers", "bitsandbytes", "gptqmodel"):
            raise metadata.PackageNotFoundError(name)
        return found.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)
    return found


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["-ctk", "q8_0", "-ngl", "0"],
            "--type-k, --n-gpu-layers are for a GGUF, and Transformers loads",
        ),
        (["--tuned"], "--tuned is for a GGUF"),
        (["--api-key-env", "KEY"], "--api-key-env is only for a server"),
        (["--torch-compile"], "--torch-compile needs a cache that does not grow"),
        (["-c", "10"], "n_ctx 10 is too small for the 525 tokens of this run"),
    ],
)
def test_options_that_do_not_go_with_a_checkpoint_are_named(
    ggbench: Run, folder: Path, options: list[str], line: str
) -> None:
    ran = ggbench("decode", f"transformers:{folder}", "-n", "500", *options)
    assert ran.code == ExitCode.USAGE
    assert line in ran.err


def test_missing_packages_are_named_before_anything_is_loaded(
    ggbench: Run, folder: Path, packages: dict[str, str]
) -> None:
    del packages["torch"]
    packages["transformers"] = "4.57.1"
    ran = ggbench("decode", f"transformers:{folder}", "-n", "500")
    assert ran.code == ExitCode.ENGINE_FAILED
    assert "torch, transformers 4.57.1 (5.0 or later)" in ran.err
    assert "pip install 'ggbench[transformers]'" in ran.err


def test_code_of_a_checkpoint_is_refused_by_name(ggbench: Run, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    code_of = {"auto_map": {"AutoModelForCausalLM": "modeling_own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps({**QWEN2_TINY, **code_of}))
    ran = ggbench("decode", f"transformers:{folder}", "-n", "500")
    assert ran.code == ExitCode.BAD_FILE
    assert "modeling_own.py" in ran.err
    assert "--trust-remote-code" in ran.err
