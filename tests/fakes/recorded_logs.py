"""Logs that llama.cpp wrote on machines with GPUs.

The first line of each says where its author published it and what it was recorded on. Lines left out are marked "...";
what a server put before a line (time, level, colour) is gone, for llama.cpp's callback has none.
"""

from pathlib import Path

RECORDED = Path(__file__).parent.parent / "data/llama_cuda"
NAMES = tuple(sorted(file.stem for file in RECORDED.glob("*.log")))


def lines_of(name: str) -> list[str]:
    source, *lines = (RECORDED / f"{name}.log").read_text(encoding="utf-8").splitlines()
    assert source.startswith("# https://")
    return lines
