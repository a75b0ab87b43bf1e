"""CPU time of `ggbench decode URL` while a server on this machine sends 100 tokens a second.

The server is this script, in llama-server's format. The CPU time of the command and of its children is read when
100 tokens were sent and when 100 are left, so neither the start nor the report counts. Exit code 1 above 5 % of a core.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.fakes.endpoint import TestEndpoint  # noqa: E402 - the repository is not a package
from tests.fakes.endpoint_voices import AnyLength, Body, Said  # noqa: E402

AIM = 0.05
_MARGIN = 100
"""Tokens at either end that do not count."""


@dataclass(slots=True)
class Reading:
    """CPU time of a command and its children at one moment; seconds."""

    at_s: float
    cpu_s: float
    n_sent: int


@dataclass
class Metered:
    """Reads a command's CPU time as its tokens are sent."""

    process: psutil.Process | None = None
    readings: list[Reading] = field(default_factory=list)

    def read(self, n_sent: int) -> None:
        """Add a reading; nothing where the command has not started."""
        if self.process is not None:
            family = [self.process, *self.process.children(recursive=True)]
            times = [each.cpu_times() for each in family]
            cpu_s = sum(each.user + each.system for each in times)
            self.readings.append(Reading(time.perf_counter(), cpu_s, n_sent))


class SteadyVoice(AnyLength):
    """Sends tokens at a steady rate, whatever each took to send."""

    def __init__(self, tokens_per_s: float, metered: Metered) -> None:
        super().__init__("llama_server", step_ns=round(1e9 / tokens_per_s))
        self.metered = metered
        status, props = self.documents["GET", "/props"]
        self.documents["GET", "/props"] = status, re.sub(rb'"n_ctx":\d+', b'"n_ctx":1048576', props)

    def stream(self, path: str, body: Body) -> Iterator[Said]:
        """Yield each token when it is due; read the CPU time near either end."""
        n_gen, n_sent, began = body["n_predict"], 0, time.perf_counter()
        for line in self._llama_server(body):
            if line:
                n_sent += 1
                if n_gen > 2 * _MARGIN and n_sent in (_MARGIN, n_gen - _MARGIN):
                    self.metered.read(n_sent)
                time.sleep(max(0.0, began + n_sent * self.step_ns / 1e9 - time.perf_counter()))
            yield Said(0.0, line)


def main() -> int:
    """Run the command against the server and print its share of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--n-gen", type=int, default=3000)
    parser.add_argument("--tokens-per-s", type=float, default=100.0)
    asked = parser.parse_args()
    metered = Metered()
    with (
        tempfile.TemporaryDirectory() as home,
        TestEndpoint(SteadyVoice(asked.tokens_per_s, metered)) as endpoint,
    ):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        environment["HOME"] = home
        command = [sys.executable, "-P", "-m", "ggbench", "decode", endpoint.url, "--quiet"]
        command += ["--n-gen", str(asked.n_gen)]
        with subprocess.Popen(command, env=environment) as process:
            metered.process = psutil.Process(process.pid)
    if process.returncode or len(metered.readings) != 2:
        print(f"the command ended with {process.returncode} and {len(metered.readings)} of 2 readings")
        return 1
    first, last = metered.readings
    seconds, n_tokens = last.at_s - first.at_s, last.n_sent - first.n_sent
    share = (last.cpu_s - first.cpu_s) / seconds
    print(f"{n_tokens} tokens in {seconds:.1f} s ({n_tokens / seconds:.1f} a second): {share:.1%} of a core")
    return 0 if share < AIM else 1


if __name__ == "__main__":
    sys.exit(main())
