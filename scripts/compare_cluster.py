"""What `ggbench cluster plan` expects beside what `ggbench decode` measures, over links of several delays.

Two servers run on this machine: a near one with one thread, and a far one with two, behind a proxy that adds a delay to
each round trip and caps the rate. So the far one computes faster, and its link may cost more than that saves. For each
delay the plan times every device once; then decodes on one device each, on both servers, and with the plan's own split
are measured and compared with what the plan's figures say of that split. The plan's advice is right where nothing that
was measured is faster than its split by more than the noise.

Exit code 1 where a decode is further from its expectation than aimed at, or the advice was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.rpc_server import RpcServerProcess, ServeRequest
from ggbench.experiments.decode.record import N_PROMPT
from ggbench.sizing.cluster import ClusterSplit, DeviceSpeed
from ggbench.sizing.cluster_plan import split_setup, step_ms
from ggbench.units import GIB, parse_bandwidth
from scripts.peer_programs import timed
from scripts.slow_link import slow_link
from tests.fakes.rpc_server import free_port

AIM, NOISE = 0.15, 0.03
N_CTX = 256
"""That a plan is for; the decode begins as far from its beginning as it ends before its end."""
NAMES = "near", "far", "here"
HEADER = """\
| added delay | split: near, far, here | expected | measured | measured / expected | |
|---:|---|---:|---:|---:|---|"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One split, as the plan expects it and as it is; ms of a token."""

    n_layers: tuple[int, ...]
    expected_ms: float
    measured_ms: float
    is_planned: bool

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured_ms / self.expected_ms


def main() -> int:
    """Measure every delay; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="twin:qwen1.5-0.5b")
    parser.add_argument("quant", nargs="?", default="q4_k_m")
    parser.add_argument("--delays", default="0,1,5", help="ms that each round trip takes longer")
    parser.add_argument("--rate", type=parse_bandwidth, default=125e6, help="of the far link, e.g. 125MB/s (default)")
    parser.add_argument("--limit", default="", help="emulate machines with this much memory each, e.g. 300MiB")
    asked = parser.parse_args()
    print(HEADER, flush=True)
    is_right = True
    for delay_ms in map(float, asked.delays.split(",")):
        with _server(1) as near, _server(2) as far, slow_link(far, delay_ms / 2e3, asked.rate) as link:
            found = _compare(asked, (near, link))
        fastest = min(found, key=lambda each: each.measured_ms)
        planned = next(each for each in found if each.is_planned)
        is_good = planned.measured_ms <= fastest.measured_ms * (1 + NOISE)
        for each in found:
            is_near = abs(each.ratio - 1) <= AIM
            is_right = is_right and is_near and is_good
            left_out = ", ".join(name for name, count in zip(NAMES, each.n_layers, strict=True) if not count)
            note = f"the plan's, without {left_out or 'none'}; {'the fastest' if is_good else 'not the fastest ✗'}"
            print(
                f"| {delay_ms:g} ms | {', '.join(map(str, each.n_layers))} | {each.expected_ms:.1f} ms "
                f"| {each.measured_ms:.1f} ms | {each.ratio:.2f}{'' if is_near else ' ✗'} "
                f"| {note if each.is_planned else ''} |",
                flush=True,
            )
    return 0 if is_right else 1


@contextlib.contextmanager
def _server(threads: int) -> Iterator[str]:
    request = ServeRequest(host="127.0.0.1", port=free_port(), threads=threads, memory_bytes=2 * GIB)
    with RpcServerProcess(request) as server:
        server.wait_until_ready()
        yield server.server


def _compare(asked: argparse.Namespace, servers: tuple[str, str]) -> list[Measured]:
    """The plan's split, each device alone and both servers with half of the layers each."""
    limit = ("--memory-limit", asked.limit) if asked.limit else ()
    words = (asked.model, asked.quant, "--rpc", ",".join(servers), "-t", 1, "-c", N_CTX)
    plan = _ggbench("cluster", "plan", *words, *limit)["plans"][0]
    speeds = msgspec.convert(plan["speeds"], tuple[DeviceSpeed, ...])
    planned = tuple(plan["best"]["n_layers"])
    n_layer = sum(planned)
    tried = [planned, (n_layer // 2, n_layer - n_layer // 2, 0)]
    if not asked.limit:
        tried += [tuple(n_layer * (index == device) for index in range(3)) for device in range(3)]
    found = []
    for n_layers in dict.fromkeys(tried):
        measured_ms = _ggbench("decode", *_decode_words(asked, servers, speeds, n_layers))["p50_ms"]
        expected_ms = step_ms(speeds, n_layers, N_CTX / 2)
        found.append(Measured(n_layers, expected_ms, measured_ms, n_layers == planned))
    return found


def _decode_words(
    asked: argparse.Namespace, servers: tuple[str, str], speeds: Sequence[DeviceSpeed], n_layers: tuple[int, ...]
) -> list[object]:
    setup = split_setup(
        LlamaConfig(rpc_servers=servers), speeds, ClusterSplit(n_layers=n_layers, b_ms=0, at_n_ctx_ms=0)
    )
    words: list[object] = [
        asked.model,
        asked.quant,
        "-t",
        1,
        "-c",
        N_CTX,
        "-n",
        N_CTX - 2 * N_PROMPT,
        "--bandwidth",
        "20GB/s",
    ]
    if setup.rpc_servers:
        words += ["--rpc", ",".join(setup.rpc_servers)]
    if setup.tensor_split:
        words += ["--tensor-split", ",".join(map(str, setup.tensor_split))]
    return [*words, "-ngl", setup.n_gpu_layers] if setup.n_gpu_layers >= 0 else words


def _ggbench(*words: object) -> Any:  # noqa: ANN401 - a JSON document
    """The document of a command, whose runs go into a folder that is thrown away. Raises SystemExit."""
    with tempfile.TemporaryDirectory(prefix="ggbench-compare-cluster-") as folder:
        text, _ = timed([sys.executable, "-P", "-m", "ggbench", *words, "--quiet", "--json"], {"XDG_DATA_HOME": folder})
    return json.loads(text)


if __name__ == "__main__":
    sys.exit(main())
