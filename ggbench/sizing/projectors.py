"""Size a vision or audio projector: the GGUF published with a model that llama.cpp loads with `--mmproj`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ggbench.engines.llama.config import FlashAttn
from ggbench.errors import BadFile, UsageError, WrongProjector
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import quant_label, role
from ggbench.models.local_files import facts_of
from ggbench.models.reference import ModelRef
from ggbench.record import Record
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

_File = TypeVar("_File")
_AUTO = Path("auto")
_PUBLISHED = "use the file published with the model as mmproj"
_WARM_UP_TOKENS = {
    "deepseek4v": 16, "dots3note_v": 46, "dots_ocr": 46, "exaone4_5": 46, "gemma4uv": 16, "gemma4v": 16, "glm4v": 46,
    "glm5v": 46, "hunyuanvl": 32, "kimivl": 16, "lightonocr": 16, "ling3vl": 46, "mimovl": 46, "minimax_m3": 16,
    "muse-glimmer": 32, "paddleocr": 28, "phi4": 16, "pixtral": 16, "qwen2.5vl_merger": 46, "qwen2vl_merger": 46,
    "qwen3vl_merger": 46, "youtuvl": 16,
}  # fmt: skip
"""Side in tokens of the image that clip.cpp warms up with (`set_warmup_n_tokens`), by type; others use the header's
image size."""
_UNMERGED = frozenset({"lightonocr", "phi4", "pixtral"})
"""Types with one patch a token if the header says nothing; Gemma 4 merges 3 x 3, the others 2 x 2."""
_FLOAT_BYTES = 4


class Projector(Record):
    """A projector as described by its header, beside a context with or without flash attention.

    llama.cpp puts all its tensors on the first GPU, whatever the number of offloaded layers, or in main memory without
    a GPU. Source: tools/mtmd/clip.cpp, `clip_ctx` and `load_tensors`.
    """

    path: Path | None
    """None for one that is not on this disk."""
    weight_bytes: int
    """Without a compute buffer."""
    compute_bytes: int = 0
    """Upper bound of the compute buffer at the warm-up image; 0 if the header gives none.

    llama-server's --fit counts that image too; larger ones take more.
    """
    widths: frozenset[int] = frozenset()
    """Widths that its last tensors may give out; empty if only its size is published."""
    url: str = ""
    """Where to download it; empty if it is on this disk, or no address is known."""

    @property
    def needed_bytes(self) -> int:
        """Memory to leave free for it."""
        return self.weight_bytes + self.compute_bytes

    def check(self, model: ModelFile) -> None:
        """Raise WrongProjector if no tensor gives out embeddings as wide as the model's, as llama-server does."""
        if self.widths and model.n_embd not in self.widths:
            name = self.path.name if self.path is not None else self.url.rpartition("/")[2]
            what = f"{sanitize(name)} is not a projector of {sanitize(model.name)}"
            raise WrongProjector(f"{what}: none of its tensors is {model.n_embd} wide", _PUBLISHED)


def read_projector(path: Path, flash_attn: FlashAttn = "auto") -> Projector:
    """Return the projector in a file, from its header. Raises BadFile for another kind of file.

    `auto` counts as on: clip.cpp falls back, and asks to report it, only on a backend that lacks the operation.
    """
    return replace(projector_of(read_model_file(path), path.name, flash_attn), path=path)


def projector_of(file: ModelFile, name: str, flash_attn: FlashAttn = "auto") -> Projector:
    """Return the projector that a header describes. Raises BadFile for a header of another kind."""
    if not is_projector(file):
        raise BadFile(
            f"{sanitize(name)} is a model of the architecture {sanitize(file.architecture)}, not a projector",
            _PUBLISHED,
        )
    if file.weight_bytes is None:
        raise BadFile(
            f"{sanitize(name)} has tensors of unknown type: {sanitize(', '.join(file.unknown_types))}",
            "use another file of the projector, e.g. F16",
        )
    copied = sum(tensor.n_elements for tensor in file.tensors if tensor.name == "mm.input_projection.weight")
    last = [tensor for tensor in file.tensors if not tensor.name.startswith(("v.blk.", "a.blk."))]
    widths = {size for tensor in last for size in tensor.shape}
    compute_bytes = _compute_bytes(file.metadata, flash_attn, copied)
    return Projector(None, file.weight_bytes, compute_bytes, frozenset(widths))


def is_projector(file: ModelFile) -> bool:
    return role(file.name, file.metadata, file.tensors) == "projector"


def published_projector(model: ModelRef, hub: HubAccess, flash_attn: FlashAttn) -> Projector:
    """Return the projector published with a model: of a repo by its header, of the catalog by what it says of one.

    Raises BadFile for a model without one, UsageError if the catalog has no size of it, and like `list_repo`.
    """
    from ggbench.hub.api import file_url
    from ggbench.hub.headers import read_variant_header
    from ggbench.hub.listing import list_repo
    from ggbench.hub.repo_records import RepoVariant
    from ggbench.models.catalog import load_catalog

    if model.kind in ("catalog", "twin"):
        known = load_catalog().model(model.name)
        if known.mmproj_bytes is None:
            hint = "give its file, --mmproj FILE, or a Hub repo with one as MODEL: org/name"
            raise UsageError(f"the catalog has no projector of {known.id}", hint)
        vision = {f"clip.vision.{key}": value for key, value in known.mmproj_vision.items()}
        return Projector(None, known.mmproj_bytes, _compute_bytes(vision, flash_attn))
    listing = list_repo(hub, model.name, model.revision)
    found = {each.path: each for each in listing.sidecars if role(each.path) == "projector"}
    chosen = _chosen(found, sanitize(listing.repo))
    file = read_variant_header(hub, listing, RepoVariant(chosen.name, None, (chosen,)))
    url = file_url(hub, listing.repo, chosen.path, listing.commit)
    return replace(projector_of(file, chosen.name, flash_attn), url=url)


def find_projector(given: Path, model: ModelRef | None) -> Path:
    """Return the absolute path of a projector given as a file, or as `auto` for the one in the model's folder.

    Raises UsageError for `auto` without a model on this disk, and BadFile for a folder without a projector or with
    several of which not one is in f16.
    """
    if given != _AUTO:
        return given.absolute()
    if model is None or model.kind != "path":
        raise UsageError("--mmproj auto needs a model on this disk", "give the projector's file: --mmproj FILE")
    path = model.path.absolute()
    folder = path if path.is_dir() else path.parent
    files = (each for each in sorted(folder.glob("*.gguf")) if facts_of(each, each.name).role == "projector")
    return _chosen({each.name: each for each in files}, sanitize(folder.name) or "this folder")


def _chosen(files: Mapping[str, _File], shown: str) -> _File:
    """Return the only one of some projectors, of several the one in f16. Raises BadFile for none or many."""
    if not files:
        raise BadFile(f"no projector (mmproj*.gguf) in {shown}", "download it, or give --mmproj FILE")
    found = [name for name in files if len(files) == 1 or quant_label(name) == "f16"] or [*files]
    if len(found) > 1:
        raise BadFile(
            f"{len(found)} projectors in {shown}", f"choose one with --mmproj: {sanitize(', '.join(found))}"
        )
    return files[found[0]]


def _compute_bytes(metadata: Mapping[str, Any], flash_attn: FlashAttn, copied: int = 0) -> int:
    """Return an upper bound of the compute buffer; 0 if unknown.

    It counts the raw image, and the most that one step of clip.cpp's `build_vit` keeps alive in f32, without reuse: in
    attention the residual, Q, K and V with their rotations and f16 copies, and two outputs; in the feed-forward part
    the residual, its norm, three hidden rows and the output; or the unfolded patches; and Gemma's transposed
    projection, of `copied` elements; and without flash attention its scores. An audio encoder's buffer is not bounded.
    """
    kind = str(metadata.get("clip.vision.projector_type") or metadata.get("clip.projector_type"))
    n_embd, n_ff, n_head, patch, side = (
        _count(metadata, f"clip.vision.{key}")
        for key in (
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "patch_size",
            "image_size",
        )
    )
    if kind in _WARM_UP_TOKENS:
        side = _WARM_UP_TOKENS[kind] * patch * _merged(metadata, kind)
    if not all((n_embd, patch, side)):
        return 0
    n_patches = (-(-side // patch)) ** 2 + 1
    of_patch = max(11 * n_embd, 3 * (n_embd + n_ff), 3 * patch**2 + 3 * n_embd)
    floats = 3 * side**2 + n_patches * of_patch + copied
    scores = 2 * n_head * n_patches**2 if flash_attn == "off" else 0
    return _FLOAT_BYTES * (floats + scores)


def _merged(metadata: Mapping[str, Any], kind: str) -> int:
    """Return how many patches in a row make a token."""
    for key in ("clip.vision.spatial_merge_size", "clip.vision.projector.scale_factor"):
        if given := _count(metadata, key):
            return given
    if kind.startswith("gemma4"):
        return 3
    return 1 if kind in _UNMERGED else 2


def _count(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else 0
