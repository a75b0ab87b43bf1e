"""Damaged results files and caches."""

import contextlib
import itertools
import random
import sqlite3
from pathlib import Path

from ggbench import paths
from ggbench.hub.listing import list_repo
from tests.fakes.measured import fill
from tests.hardening.damage import MUTATIONS, damaged
from tests.hardening.served import kept_worker, served_hub
from tests.hardening.trials import Trials, ggbench

_READING = (
    ("results",), ("results", "--json"), ("results", "show", "1"), ("results", "show", "1", "--json"),
    ("compare", "1", "3"), ("export", "1", "--format", "csv"), ("export", "1", "--format", "json"), ("export", "1"),
)  # fmt: skip
_REPO = "org/cached-GGUF"


def damaged_stores(n: int, draw: random.Random, folder: Path) -> Trials:
    """Open damaged results files and read runs of them; no byte of one may be deleted."""
    row = Trials("damaged results files")
    path = folder / "sound.sqlite"
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("PRAGMA journal_mode = DELETE")
    sound = path.read_bytes()
    store = paths.results_file()
    for number, kind in enumerate(itertools.islice(itertools.cycle(MUTATIONS), n)):
        for old in store.parent.glob("*"):
            old.unlink()
        store.parent.mkdir(parents=True, exist_ok=True)
        content = damaged(sound, draw, kind)
        store.write_bytes(content)
        label = f"{kind} of a store"
        for command in {_READING[0], _READING[number % len(_READING)]}:
            row.run(f"{label}, {' '.join(command)}", *command)
        row.tried -= 1 if number % len(_READING) else 0
        moved = [path for path in store.parent.glob("results.broken-*") if path.suffix == ".sqlite"]
        if moved and moved[0].read_bytes() != content:
            row.lost_bytes += len(content)
            row.fault(f"{label}: the file was changed before it was moved aside")
        if not moved and not store.exists():
            row.lost_bytes += len(content)
            row.fault(f"{label}: the file is gone")
    return row


def damaged_caches(n: int, draw: random.Random, folder: Path) -> Trials:
    """Damage each file that ggbench keeps for itself, and run the commands that read it."""
    row = Trials("damaged caches")
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    header = sorted((Path(__file__).parent.parent / "data" / "headers").iterdir())[0].read_bytes()
    local = models / "local-q4_1.gguf"
    local.write_bytes(header)
    with local.open("r+b") as file:
        file.truncate(len(header) + (200 << 20))
    with served_hub() as (hub, access), kept_worker():
        hub.add_repo(_REPO, {"m-q4_1.gguf": header})
        list_repo(access, _REPO)
        ggbench("models", _REPO)
        ggbench("plan", f"hf:{_REPO}", "--json")
        ggbench("models", str(models))
        commands = (
            ("models", str(models)), ("models", _REPO, "--offline"),
            ("plan", f"hf:{_REPO}", "m-q4_1.gguf", "--offline"),
            ("limits", f"hf:{_REPO}", "m-q4_1.gguf", "--gpu", "rtx-4090"),
            ("limits", "qwen1.5-0.5b", "--gpu", "rtx-4090"),
        )  # fmt: skip
        kept = {
            path: path.read_bytes()
            for path in sorted(paths.caches_dir().rglob("*"))
            if path.is_file() and path.suffix != ".gguf"
        }
        cases = itertools.cycle(itertools.product(MUTATIONS, kept))
        for kind, path in itertools.islice(cases, n):
            content = damaged(kept[path], draw, kind)
            path.write_bytes(content)
            row.run(f"{kind} of {path.name}", *draw.choice(commands))
            path.write_bytes(kept[path])
    return row
