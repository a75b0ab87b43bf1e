"""How long `ggbench models` takes with 500 GGUF files on the disk: whole processes, first without its index, then with.

The files are sparse, with headers as published models have them: a vocabulary of 150,000 strings makes one 6 MB long.
They share their blocks on the disk where it can, and the page cache is warm: what is timed is ggbench, not the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "ggbench", "models")
N_TOKENS = 150_000
FILE_BYTES = 4 << 30
QUANTS = ("q4_k_m", "q8_0", "q6_k", "q5_k_m", "q3_k_m")


def string(text: str) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(text)) + text.encode()


def text_key(name: str, text: str) -> bytes:
    """A metadata key with a string."""
    return string(name) + struct.pack("<I", 8) + string(text)


def number_key(name: str, value: int) -> bytes:
    """A metadata key with an unsigned number."""
    return string(name) + struct.pack("<II", 4, value)


def published_header() -> bytes:
    """A header in the order that llama.cpp's converter and quantizer leave it in."""
    tokens = b"".join(string(f"token-{index:024}") for index in range(N_TOKENS))
    keys = [
        text_key("general.architecture", "qwen2"),
        text_key("general.name", "Qwen2.5 7B Instruct"),
        text_key("general.size_label", "7B"),
        *(
            number_key(f"qwen2.{name}", 28)
            for name in ("block_count", "embedding_length", "feed_forward_length")
        ),
        number_key("qwen2.context_length", 32768),
        text_key("tokenizer.ggml.model", "gpt2"),
        string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, N_TOKENS) + tokens,
        text_key("tokenizer.chat_template", "{% for message in messages %}" * 200),
        number_key("general.file_type", 15),
    ]
    tensors = [
        string(f"blk.{index}.ffn_up.weight") + struct.pack("<IQQIQ", 2, 256, 256, 0, index << 18)
        for index in range(300)
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)


def make_stores(home: Path, n_files: int) -> None:
    """A Hugging Face cache and an LM Studio folder, half of the files in each."""
    first = home / "first.gguf"
    first.write_bytes(published_header())
    os.truncate(first, FILE_BYTES)
    for index in range(n_files):
        quant = QUANTS[index % len(QUANTS)]
        number = index // len(QUANTS)
        name = f"Qwen2.5-{number}B-Instruct-{quant}.gguf"
        if index < n_files // 2:
            repo = home / f"cache/huggingface/hub/models--Qwen--Qwen2.5-{number}B-Instruct-GGUF"
            blob = repo / "blobs" / f"{index:064x}"
            link = repo / "snapshots" / f"{number:040x}" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../blobs/{blob.name}")
        else:
            blob = home / f".lmstudio/models/publisher/Qwen2.5-{number}B-Instruct-GGUF/{name}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", first, blob], check=True)
    first.unlink()


def timed(environment: dict[str, str], *args: str) -> float:
    """Seconds that one whole process takes."""
    begun = time.perf_counter()
    subprocess.run([*COMMAND, *args], env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    """Make the files, time the processes, say the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ggbench-models-") as folder:
        home = Path(folder)
        environment = {**os.environ, "HOME": folder, "XDG_CACHE_HOME": f"{folder}/cache", "NO_COLOR": "1"}
        # An installed ggbench has its bytecode; this one may be set to write none.
        environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        for name in (
            "PYTHONDONTWRITEBYTECODE",
            "HF_HOME",
            "HF_HUB_CACHE",
            "HUGGINGFACE_HUB_CACHE",
            "LLAMA_CACHE",
            "OLLAMA_MODELS",
        ):
            environment.pop(name, None)
        timed(environment)
        empty = statistics.median(timed(environment) for _ in range(options.repeat))
        make_stores(home, options.files)
        cold = []
        for _ in range(options.repeat):
            shutil.rmtree(home / "cache/ggbench", ignore_errors=True)
            cold.append(timed(environment))
        listed = subprocess.run([*COMMAND, "--json"], env=environment, check=True, capture_output=True).stdout
        if len(json.loads(listed)["files"]) != options.files:
            raise SystemExit("not every file was found")
        print(
            f"{options.files} files, headers of {len(published_header()) / 1e6:.1f} MB, median of {options.repeat}"
        )
        print(f"  none on the disk  {empty * 1e3:6.0f} ms")
        print(f"  without the index {statistics.median(cold) * 1e3:6.0f} ms")
        for title, args in (("with it", ()), ("with it, --json", ("--json",))):
            times = [timed(environment, *args) for _ in range(options.repeat)]
            print(f"  {title:17} {statistics.median(times) * 1e3:6.0f} ms (best {min(times) * 1e3:.0f})")


if __name__ == "__main__":
    main()
