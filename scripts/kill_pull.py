"""The trial behind scripts/kill_pull; exit code 1 where the hash is wrong or too much was sent.

Each run is killed with SIGKILL once a random part of the file has arrived, and the last one is left alone. The Hub
counts what it sent: bytes on their way at a kill are lost, so its send buffer is small, and it sends no faster than a
good line does; on loopback megabytes would wait in the receiver's buffer.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_pull import CHECKOUT, FILE, QUANT, REPO, environment, write_random

from tests.fakes.hub import TestHub

AIM = 1.05


def main() -> int:
    """Kill, count and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256 * 10**6, metavar="BYTES")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--send-buffer", type=int, default=64 << 10, metavar="BYTES")
    parser.add_argument("--rate", type=float, default=100e6, metavar="BYTES_PER_S")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    points = sorted(draw.randrange(asked.size) for _ in range(asked.kills))
    with tempfile.TemporaryDirectory() as folder:
        source, caches = Path(folder) / FILE, Path(folder) / "caches"
        write_random(source, asked.size)
        with TestHub(send_buffer_bytes=asked.send_buffer, bytes_per_s=asked.rate) as hub:
            hub.add_repo(REPO, {FILE: source})
            command = [sys.executable, "-P", "-m", "ggbench", "pull", f"hf:{REPO}", QUANT, "--quiet"]
            for point in points:
                reached = _run_until(command, environment(hub.url, caches), caches, point)
                sent = hub.sent_bytes()
                print(
                    f"killed at {reached:11,} of {asked.size:,} bytes; {sent - reached:9,} in vain so far", flush=True
                )
            ended = subprocess.run(
                command, check=True, env=environment(hub.url, caches), capture_output=True, text=True, cwd=CHECKOUT
            )
            sent = hub.sent_bytes()
        path = Path(ended.stdout.strip())
        is_right = _sha256(path) == _sha256(source)
        left = [each for each in caches.rglob("*.incomplete") if each.is_file()]
    print(f"sha256 {'right' if is_right else 'WRONG'}, {len(left)} parts left")
    print(f"sent {sent:,} bytes, {sent / asked.size:.4f} times the file, aim {AIM} or less")
    return 0 if is_right and not left and sent <= AIM * asked.size else 1


def _run_until(command: list[str], env: dict[str, str], caches: Path, point: int) -> int:
    """Kill the command once that many bytes have arrived; how many have."""
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, cwd=CHECKOUT) as process:
        while process.poll() is None and _arrived(caches) < point:
            time.sleep(0.001)
        process.kill()
    if process.returncode > 0:
        sys.exit(f"it ended by itself, with exit code {process.returncode}")
    return _arrived(caches)


def _arrived(caches: Path) -> int:
    for path in caches.glob("huggingface/hub/*/blobs/*"):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            continue
    return 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
