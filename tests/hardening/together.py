"""Many ggbench at once, on one store and one cache."""

import contextlib
import hashlib
import json
import random
import sqlite3
from pathlib import Path

from ggbench import paths
from ggbench.gguf_file.header import read_model_file
from tests.hardening.commands import finish, started
from tests.hardening.served import served_hub
from tests.hardening.trials import Trials, ggbench

_REPO = "org/shared-GGUF"
_N = 8


def all_at_once(draw: random.Random, folder: Path, model: Path, n_rounds: int = 3) -> Trials:
    """Write the same twin, pull the same file, and measure, list and import into the same store, eight at a time."""
    row = Trials(f"{_N} ggbench at once on one store and one cache")
    content = draw.randbytes(8 << 20)
    peer = Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json"
    n_before = len(_run_ids())
    n_expected = n_before
    n_imported = json.loads(ggbench("import", str(peer), "--json").out)["rows"]
    n_expected += len(n_imported)
    with served_hub() as (hub, _):
        hub.add_repo(_REPO, {"shared-q8_0.gguf": content})
        hub.bytes_per_s = 20e6
        for number in range(n_rounds):
            for words in (
                ["decode", str(model), "-n", "120", "--bandwidth", "20GB/s", "--json"],
                ["twin", "qwen1.5-0.5b", "q4_0", "--layers", "2", "-o", str(folder / f"twins-{number}")],
                ["pull", f"hf:{_REPO}", "q8_0"],
                ["models", str(model.parent), "--json"],
                ["results", "--json"],
            ):
                with contextlib.ExitStack() as stack:
                    processes = [stack.enter_context(started(row, f"{_N} x {words[0]}", words)) for _ in range(_N)]
                    for process in processes:
                        finish(row, f"{_N} x {words[0]}", process, limit_s=300)
                        if process.returncode:
                            row.fault(f"{_N} x {words[0]}: exit code {process.returncode}")
                n_expected += _N if words[0] == "decode" else 0
    if len(_run_ids()) != n_expected:
        row.lost_bytes += 1
        row.fault(f"{n_expected} runs were made, {len(_run_ids())} are stored")
    with contextlib.closing(sqlite3.connect(paths.results_file())) as raw:
        if (answer := raw.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            row.lost_bytes += paths.results_file().stat().st_size
            row.fault(f"the store is damaged: {answer}")
    for path in folder.glob("twins-*/*.gguf"):
        if read_model_file(path).missing_bytes:
            row.unverified_bytes += path.stat().st_size
    for path in paths.headers_dir().parent.glob("**/blobs/*"):
        held = path.read_bytes()
        if held != content and hashlib.sha256(held).hexdigest() != path.name:
            row.unverified_bytes += path.stat().st_size
            row.fault(f"{path.name} is not what was published")
    return row


def _run_ids() -> list[int]:
    return [row["run_id"] for row in json.loads(ggbench("results", "--limit", "100000", "--json").out)["rows"]]
