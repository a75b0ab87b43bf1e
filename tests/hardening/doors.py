"""What others wrote: published and imported rows, and files that users and other programs keep."""

import contextlib
import itertools
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

from ggbench import paths
from ggbench.models import published
from ggbench.models.added_places import add_place, are_places_damaged
from ggbench.models.catalog import shipped_models_file
from ggbench.runs.store.database import Store
from scripts.llama_bench_pasted import read_pasted
from tests.fakes.checkpoints import QWEN2_TINY, write_checkpoint
from tests.hardening.damage import MUTATIONS, TEXT_MUTATIONS, damaged
from tests.hardening.kills import samples_by_run
from tests.hardening.served import kept_worker
from tests.hardening.trials import Trials

_DATA = Path(__file__).parent.parent / "data"
_KINDS = (*MUTATIONS, *[kind for kind in TEXT_MUTATIONS for _ in range(5)])
"""Damage of text that leaves it readable is tried as often as any other."""


def damaged_rows(n: int, draw: random.Random, folder: Path) -> Trials:
    """Import damaged results of each format beside the user's own, show what came in, and remove it."""
    row = Trials("damaged rows of others, imported")
    folder.mkdir(parents=True)
    for form in ("json", "llama-bench"):
        row.run(f"export {form}", "export", "1", "--format", form, "-o", str(folder / f"own.{form}"))
    sound = {path.name: path.read_bytes() for path in (*sorted((_DATA / "peers").iterdir()), *folder.iterdir())}
    before = samples_by_run()
    for kind, (name, content) in itertools.islice(itertools.cycle(itertools.product(_KINDS, sound.items())), n):
        path, label = folder / f"theirs-{name}", f"{kind} of {name}"
        path.write_bytes(damaged(content, draw, kind))
        row.run(f"{label}, import", "import", str(path))
        row.run(f"{label}, compare", "compare", str(path), "1")
        row.attempt(f"{label}, pasted", partial(_paste, path))
        row.tried -= 2
        after = samples_by_run()
        if theirs := [str(run_id) for run_id in after if run_id not in before]:
            exports = [["export", *theirs, "--format", form] for form in ("llama-bench", "csv", "json")]
            for words in (["results"], ["results", "show", theirs[0]], ["compare", *theirs[:2], "1"], *exports):
                row.run(f"{label}, {words[0]}", *words)
                row.tried -= 1
            with Store.open() as store:
                for each in theirs:
                    store.delete_run(int(each))
        if {run_id: after.get(run_id) for run_id in before} != before:
            row.lost_bytes += 16 * sum(before.values())
            row.fault(f"{label}: the user's own runs were changed")
        path.unlink()
    return row


def _paste(path: Path) -> None:
    for _ in read_pasted(path.read_text("utf-8", "replace"), path.name):
        pass


_OF_PUBLISHED = (
    ("published", "--json"), ("published", "--source", "llama-bench"), ("published", "llama", "--md"),
    ("plan", "qwen2.5-7b", "q4_k_m", "--gpu", "rtx-3090"),
    ("pick", "qwen2.5-7b", "--gpu", "rtx-3090"), ("results", "show", "1", "--against", "published"),
)  # fmt: skip


def damaged_published(n: int, draw: random.Random) -> Trials:
    """Read damaged tables of what others published, which come with ggbench."""
    row = Trials("damaged published rows")
    folder = Path(published.__file__).parent / "data"
    sound = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for number, kind in enumerate(itertools.islice(itertools.cycle(_KINDS), n)):
        name = draw.choice(list(sound))
        text = damaged(sound[name], draw, kind).decode("utf-8", "replace")
        with _published(name, text):
            words = _OF_PUBLISHED[number % len(_OF_PUBLISHED)]
            row.run(f"{kind} of {name}, {words[0]}", *words)
    return row


@contextlib.contextmanager
def _published(name: str, text: str) -> Iterator[None]:
    """Replace a table that comes with ggbench, and forget before and after what was read of all of them."""
    whole = published.data_text
    readers = [module for module in list(sys.modules.values()) if getattr(module, "data_text", None) is whole]
    with contextlib.ExitStack() as stack:
        for module in readers:
            stack.enter_context(mock.patch.object(module, "data_text", lambda n: text if n == name else whole(n)))
        _forget()
        yield
    _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(("ggbench.models.published", "ggbench.expect.published_speed", "ggbench.decisions")):
            for function in vars(module).values():
                getattr(function, "cache_clear", lambda: None)()


_SESSION = b"""\
{"new": 800, "generated": 120}
{"usage": {"prompt_tokens": 1400, "completion_tokens": 90, "prompt_tokens_details": {"cached_tokens": 900}}}
{"timings": {"prompt_n": 200, "predicted_n": 80, "cache_n": 1500}}
{"new": 30, "generated": 200, "kept": 0.8}
"""


def damaged_notes(n: int, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Damage what a user and other programs keep, and run what reads it; the bytes stay, or are kept aside."""
    row = Trials("damaged files of the user and of other programs")
    ollama, digest, user_models = Path.home() / ".ollama" / "models", "a" * 64, paths.user_models_file()
    manifest = ollama / "manifests" / "registry.ollama.ai" / "library" / "qwen" / "latest"
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 3}]
    config = {"digest": f"sha256:{'b' * 64}", "mediaType": "x", "size": 20}
    first = shipped_models_file().read_bytes().split(b"\n[[model]]")[1]
    documents = {
        manifest: {"layers": layers, "config": config},
        ollama / "blobs" / f"sha256-{'b' * 64}": {"model_type": "0.5B", "file_type": "Q4_0"},
        Path.home() / ".lmstudio" / "settings.json": {"downloadsFolder": str(model.parent)},
    }
    given = {
        **{path: json.dumps(document).encode() for path, document in documents.items()},
        ollama / "blobs" / f"sha256-{digest}": model.read_bytes(),
        user_models: b"[[model]]" + first.replace(b'id = "', b'id = "mine-') + b"\n[[model]]" + first,
        folder / "session.jsonl": _SESSION,
        folder / "other" / model.name: model.read_bytes(),
    }
    for path, content in given.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    add_place(model.parent)
    places, checkpoint = paths.added_places_file(), write_checkpoint(folder / "checkpoint", QWEN2_TINY)
    listed, card = ("models", "--json"), ("--gpu", "rtx-3060")
    of_session = (str(model), *card, "--workload", str(folder / "session.jsonl"))
    readers: Mapping[Path, Sequence[Sequence[str]]] = {
        **{path: [listed] for path in (*documents, places)},
        user_models: [listed, ("models",), ("limits", "mine-qwen1.5-0.5b", *card)],
        folder / "session.jsonl": [("plan", *of_session), ("pick", *of_session)],
        checkpoint / "config.json": [("plan", f"transformers:{checkpoint}", *card)],
    }
    sound = {path: path.read_bytes() for path in readers}
    with kept_worker():
        for kind, path in itertools.islice(itertools.cycle(itertools.product(_KINDS, sound)), n):
            content = damaged(sound[path], draw, kind)
            path.write_bytes(content)
            label = f"{kind} of {path.name}"
            row.run(label, *draw.choice(readers[path]))
            if path == places:
                is_damaged = are_places_damaged()
                row.attempt(label, lambda: add_place(folder / "other"))
                row.tried -= 1
                if is_damaged and content not in [each.read_bytes() for each in places.parent.iterdir()]:
                    row.lost_bytes += len(content)
                    row.fault(f"{label}: the damaged file was replaced and not kept")
                for each in places.parent.glob(f"{places.stem}.*"):
                    each.unlink()
            elif path.read_bytes() != content:
                row.lost_bytes += len(content)
                row.fault(f"{label}: the file was changed")
            path.write_bytes(sound[path])
    return row
