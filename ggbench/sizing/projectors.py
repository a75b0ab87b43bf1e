"""Size a vision or audio projector: the GGUF published with a model that llama.cpp loads with `--mmproj`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ggbench.engines.llama.config import FlashAttn
from ggbench.errors import BadFile, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.reference import ModelRef
from ggbench.text import sanitize

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


class Projector(msgspec.Struct, frozen=True):
    """A projector as described by its header, beside a context with or without flash attention.

    llama.cpp puts all its tensors on the first GPU, whatever the number of offloaded layers, or in main memory without
    a GPU. Source: tools/mtmd/clip.cpp, `clip_ctx` and `load_tensors`.
    """

    path: Path
    weight_bytes: int
    """Without a compute buffer."""
    compute_bytes: int = 0
    """Upper bound of the compute buffer at the warm-up image; 0 if the header gives none.

    llama-server's --fit counts that image too; larger ones take more.
    """
    widths: frozenset[int] = frozenset()
    """Candidate output widths, from its tensors' shapes."""

    @property
    def needed_bytes(self) -> int:
        """Memory to leave free for it."""
        return self.weight_bytes + self.compute_bytes

    def check(self, model: ModelFile) -> None:
        """Raise BadFile if no tensor gives out embeddings as wide as the model's, so that llama-server refuses both."""
        if model.n_embd and model.n_embd not in self.widths:
            raise BadFile(
                f"{sanitize(self.path.name)} is not a projector of {sanitize(model.name)}: "
                f"none of its tensors is {model.n_embd} wide",
                _PUBLISHED,
            )


def read_projector(path: Path, flash_attn: FlashAttn = "auto") -> Projector:
    """Return the projector in a file, from its header. Raises BadFile for another kind of file.

    `auto` counts as on: clip.cpp falls back, and asks to report it, only on a backend that lacks the operation.
    """
    file = read_model_file(path)
    if file.architecture != "clip":
        raise BadFile(
            f"{sanitize(path.name)} is a model of the architecture {sanitize(file.architecture)}, not a projector",
            _PUBLISHED,
        )
    if file.weight_bytes is None:
        raise BadFile(
            f"{sanitize(path.name)} has tensors of unknown type: {sanitize(', '.join(file.unknown_types))}",
            "use another file of the projector, e.g. F16",
        )
    last = [tensor for tensor in file.tensors if not tensor.name.startswith(("v.blk.", "a.blk."))]
    widths = {size for tensor in last for size in tensor.shape}
    widths |= {_count(file, f"clip.{kind}.projection_dim") for kind in ("vision", "audio")}
    buffer_bytes, score_bytes = _compute_bytes(file)
    compute_bytes = buffer_bytes + (score_bytes if flash_attn == "off" else 0)
    return Projector(path, file.weight_bytes, compute_bytes, frozenset(widths - {0}))


def find_projector(given: Path, model: ModelRef | None) -> Path:
    """Return the absolute path of a projector given as a file, or as `auto` for the one in the model's folder.

    Raises UsageError for `auto` without a model on this disk, and like `projector_beside`.
    """
    if given != _AUTO:
        return given.absolute()
    if model is None or model.kind != "path":
        raise UsageError("--mmproj auto needs a model on this disk", "give the projector's file: --mmproj FILE")
    return projector_beside(model.path.absolute())


def projector_beside(model: Path) -> Path:
    """Return the projector in a model's folder, the one in f16 of several.

    Raises BadFile without one, and for several without one in f16.
    """
    folder = model if model.is_dir() else model.parent
    named = found = sorted(each for each in folder.glob("*.gguf") if "mmproj" in each.name.lower())
    if len(named) > 1:
        found = [each for each in named if "f16" in each.name.lower() and "bf16" not in each.name.lower()]
    shown = sanitize(folder.name) or "this folder"
    if not named:
        raise BadFile(f"no projector (mmproj*.gguf) in {shown}", "download it, or give --mmproj FILE")
    if len(found) != 1:
        names = sanitize(", ".join(each.name for each in found or named))
        raise BadFile(f"{len(found or named)} projectors in {shown}", f"choose one with --mmproj: {names}")
    return found[0]


def _compute_bytes(file: ModelFile) -> tuple[int, int]:
    """Return upper bounds of the compute buffer with flash attention and of its scores without; 0 if unknown.

    It counts the raw image, and the most that one step of clip.cpp's `build_vit` keeps alive in f32, without reuse: in
    attention the residual, Q, K and V with their rotations and f16 copies, and two outputs; in the feed-forward part
    the residual, its norm, three hidden rows and the output; or the unfolded patches; and
    Gemma's transposed projection. An audio encoder's buffer is not bounded.
    """
    kind = str(file.metadata.get("clip.vision.projector_type") or file.metadata.get("clip.projector_type"))
    n_embd, n_ff, n_head, patch, side = (
        _count(file, f"clip.vision.{key}")
        for key in ("embedding_length", "feed_forward_length", "attention.head_count", "patch_size", "image_size")
    )
    if not all((n_embd, patch, side)):
        return 0, 0
    if kind in _WARM_UP_TOKENS:
        merged = 3 if kind.startswith("gemma4") else 1 if kind in _UNMERGED else 2
        keys = ("clip.vision.spatial_merge_size", "clip.vision.projector.scale_factor")
        merged = next(filter(None, (_count(file, key) for key in keys)), merged)
        side = _WARM_UP_TOKENS[kind] * patch * merged
    n_patches = (-(-side // patch)) ** 2 + 1
    of_patch = max(11 * n_embd, 3 * (n_embd + n_ff), 3 * patch**2 + 3 * n_embd)
    copied = sum(tensor.n_elements for tensor in file.tensors if tensor.name == "mm.input_projection.weight")
    floats = 3 * side**2 + n_patches * of_patch + copied
    return _FLOAT_BYTES * floats, _FLOAT_BYTES * 2 * n_head * n_patches**2


def _count(file: ModelFile, key: str) -> int:
    value = file.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else 0
