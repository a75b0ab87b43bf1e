"""Damaged GGUF headers and files, through every reader."""

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ggbench.errors import GgbenchError
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_of
from ggbench.hub.headers import read_variant_header
from ggbench.hub.listing import list_repo
from ggbench.sizing.projectors import read_projector
from ggbench.sizing.theory.weights import count_parameters, file_weights
from tests.fakes.projector import a_projector
from tests.hardening.damage import MUTATIONS, damaged
from tests.hardening.served import served_hub
from tests.hardening.trials import Trials

HEADERS = Path(__file__).parent.parent / "data" / "headers"
_MOST_HEADER_BYTES = 64 << 20
_COMMANDS = (
    ("inspect", "FILE"), ("inspect", "FILE", "--json"), ("inspect", "FILE", "--why"),
    ("limits", "FILE", "--gpu", "rtx-4090"), ("models", "FOLDER"),
)  # fmt: skip
_REPO = "org/damaged-GGUF"
_PER_REPO = 40


def known_headers(real: Sequence[Path]) -> list[bytes]:
    """Headers of SmolLM2 in two quants with a cut vocabulary, twins of other architectures, a projector, and `real`."""
    from msgspec.structs import replace

    from ggbench.gguf_file.twin import plan_twin
    from ggbench.models.catalog import load_catalog

    headers = [path.read_bytes() for path in sorted(HEADERS.iterdir())]
    by_architecture = {model.hyper.architecture: model for model in load_catalog()}
    for model in by_architecture.values():
        hyper = replace(model.hyper, n_layer=min(3, model.hyper.n_layer))
        planned = plan_twin(hyper, ["q4_k_m"], name=model.id)["q4_k_m"]
        headers.append(encode_header(planned.metadata, planned.tensors).data)
    headers.append(a_projector(n_embd=64, vision={"image_size": 224, "patch_size": 14, "embedding_length": 64}))
    for path in real:
        with path.open("rb") as source:
            headers.append(source.read(_MOST_HEADER_BYTES)[: len(_header_of(path))])
    return headers


def damaged_headers(n: int, draw: random.Random, folder: Path, real: Sequence[Path] = ()) -> Trials:
    """Read, count, plan a twin of, show and list damaged files; one in ten by a command, one in ten from the Hub."""
    row = Trials("damaged GGUF headers and files")
    cases = _cases(known_headers(real), draw)
    path = folder / "models" / "damaged-q4_k_m.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept: list[tuple[str, bytes]] = []
    for number, (label, content) in enumerate(itertools.islice(cases, n)):
        path.write_bytes(content)
        with path.open("r+b") as file:
            file.truncate(draw.choice((len(content), len(content) + (1 << 30), 600 << 20)))
        if number % 10 == 0:
            command = _COMMANDS[number // 10 % len(_COMMANDS)]
            words = [{"FILE": str(path), "FOLDER": str(path.parent)}.get(word, word) for word in command]
            row.run(f"{label}, {command[0]}", *words)
        elif number % 10 == 1:
            kept.append((label, content))
            if len(kept) == _PER_REPO:
                _read_from_hub(row, kept)
                kept.clear()
        else:
            row.attempt(label, lambda: _exercise(path))
    if kept:
        _read_from_hub(row, kept)
    return row


def damaged_plans(n: int, draw: random.Random, folder: Path) -> Trials:
    """Plan damaged files with llama.cpp's allocator, which reads them again by itself."""
    row = Trials("damaged GGUF files, planned by llama.cpp")
    path = folder / "models" / "planned-q4_k_m.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    for label, content in itertools.islice(_cases(known_headers(()), draw), n):
        path.write_bytes(content)
        with path.open("r+b") as file:
            file.truncate(len(content) + (200 << 20))
        row.run(f"{label}, plan", "plan", str(path), "--json", "-c", "512")
    return row


def _cases(headers: Sequence[bytes], draw: random.Random) -> Iterator[tuple[str, bytes]]:
    for kind in itertools.cycle(MUTATIONS):
        for number, header in enumerate(headers):
            yield f"{kind} of header {number}", damaged(header, draw, kind)


def _exercise(path: Path) -> None:
    try:
        model = read_model_file(path)
    except GgbenchError:
        model = read_model_file(path, allow_missing_data=True)
    _count(model)
    encoded = twin_of(model, "org/name")
    encode_header(encoded.metadata, encoded.tensors)
    read_projector(path)


def _count(model: ModelFile) -> None:
    assert model.bpw is None or model.bpw >= 0
    assert model.n_params is None or model.n_params >= 0
    for call in (model.kv_bytes_per_token, lambda: count_parameters(model), lambda: file_weights(model, "w")):
        try:
            call()
        except GgbenchError:
            continue


def _read_from_hub(row: Trials, kept: Sequence[tuple[str, bytes]]) -> None:
    files: dict[str, Path | bytes] = {f"m{number}-q4_k_m.gguf": content for number, (_, content) in enumerate(kept)}
    with served_hub() as (hub, access):
        hub.add_repo(_REPO, files)
        listing = list_repo(access, _REPO)
        for variant in listing.variants:
            label = kept[int(variant.files[0].path[1:].split("-")[0])][0]
            row.attempt(f"{label}, from the Hub", partial(read_variant_header, access, listing, variant))


def _header_of(path: Path) -> bytes:
    from ggbench.gguf_file.header import read_local_header

    return read_local_header(path, allow_missing_data=True).raw
