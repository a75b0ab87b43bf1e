"""Plans of several slots, and of what runs beside a model, against the buffers in llama-server's own log.

A draft, MTP layers and a projector each have a file that is here or made here: SmolLM2 drafts for itself, a twin of two
layers has one that drafts, and a projector of zeros is written. No text is generated.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ggbench.engines.events import Allocated
from ggbench.engines.llama.logs import parse_allocations
from ggbench.gguf_file.header import encode_header, read_model_file, write_sparse_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.gguf_file.twin import cached_twin, with_vocabulary
from ggbench.units import MIB
from scripts.peer_figures import N_CTX, PLACES, Bench, Figure, Values, ggbench, serving, slot_words
from scripts.peer_table import Row

_DRAFTS = Hyperparameters(
    architecture="qwen35", n_layer=2, n_embd=256, n_head=4, n_head_kv=2, n_ff=512, n_vocab=16384, n_ctx_train=32768,
    head_dim=64, n_rot=32, layer_pattern="M*", ssm_conv=4, ssm_state=64, ssm_inner=256, ssm_n_head=4, ssm_n_group=4,
    n_layer_nextn=1,
)  # fmt: skip
_VIT = {"embedding_length": 192, "feed_forward_length": 768, "attention.head_count": 3, "block_count": 4}
_TYPES = {"idefics3": 4, "gemma3": 4}
"""Types of projectors that are made, with the patches that one token merges along a side."""
_SLOTS = tuple(slot_words(n, is_unified) for n, is_unified in (
    (1, False), (2, False), (4, False), (4, True), (8, False), (8, True), (2, True),
))  # fmt: skip
_PLAIN = ("--fit", "off", "--load-mode", "none", "--no-repack")
"""One load and one copy of the weights, so that every buffer of the log is one that stays."""
_CONTEXT, _MODEL = "constructing llama_context", "llama_model_loader: loaded meta data"
_CLIP_WEIGHTS = re.compile(r"load_hparams: model size:\s+([\d.]+) MiB")
_CLIP_COMPUTE = re.compile(r"reserve_compute_meta:\s+\S+ compute buffer size =\s+([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class _Case:
    what: str
    file: Path
    slots: Sequence[object]
    ours: Sequence[object] = ()
    theirs: Sequence[object] = ()

    def row(self, part: str) -> Row:
        slots = f"-np {self.slots[1]}{' -kvu' if len(self.slots) > 2 else ''}"
        # a bound may be up to three times what it bounds, and never less
        least, most = (1.0, 3.0) if part.endswith("bound") else (0.999, 1.001)
        return Row(f"plan, {slots}{self.what}: {part}", "MiB", "llama-server's buffers", least, most)


@contextlib.contextmanager
def _cases(bench: Bench) -> Iterator[list[_Case]]:
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-peers-") as name:
        folder = Path(name)
        cases = [_Case("", bench.file, slots) for slots in _SLOTS]
        drafting = ("-md", bench.file, "--spec-type", "draft-simple")
        cases += [
            _Case(", draft", bench.file, slots, ("--draft", bench.file), drafting) for slots in _SLOTS[:4]
        ]
        mtp = with_vocabulary(read_model_file(cached_twin("mtp", _DRAFTS, "q8_0", folder)), folder)
        cases += [_Case(", MTP twin", mtp, slots) for slots in _SLOTS[:1]]
        cases += [_Case(", MTP", mtp, slots, ("--mtp",), ("--spec-type", "draft-mtp")) for slots in _SLOTS[:4]]
        for kind in _TYPES:
            path = _projector(folder / f"mmproj-{kind}.gguf", kind, read_model_file(bench.file).n_embd)
            words = ("--mmproj", path)
            cases += [
                _Case(f", {kind} projector", bench.file, slots, words, words)
                for slots in (_SLOTS[0], _SLOTS[2])
            ]
        yield cases


def _projector(path: Path, kind: str, n_embd: int) -> Path:
    """Write a projector of zeros with a small image encoder."""
    merged, width, n_ff = _TYPES[kind], _VIT["embedding_length"], _VIT["feed_forward_length"]
    side, patch = 256, 16
    keys: dict[str, object] = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.use_gelu": True,
    }
    keys |= {"clip.projector_type": kind} | {f"clip.vision.{name}": value for name, value in _VIT.items()}
    keys |= {f"clip.vision.{name}": [0.5] * 3 for name in ("image_mean", "image_std")}
    keys |= {
        "clip.vision.image_size": side,
        "clip.vision.patch_size": patch,
        "clip.vision.projection_dim": n_embd,
    }
    keys |= {"clip.vision.projector.scale_factor": merged, "clip.vision.attention.layer_norm_epsilon": 1e-6}
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (patch, patch, 3, width), "v.position_embd.weight": (width, (side // patch) ** 2),
        "v.post_ln.weight": (width,), "v.post_ln.bias": (width,),
    }  # fmt: skip
    for layer in range(_VIT["block_count"]):
        sizes = {"attn_q": (width, width), "attn_k": (width, width), "attn_v": (width, width)}
        sizes |= {"attn_out": (width, width), "ffn_up": (width, n_ff), "ffn_down": (n_ff, width)}
        for name, (n_in, n_out) in sizes.items():
            shapes |= {f"v.blk.{layer}.{name}.weight": (n_in, n_out), f"v.blk.{layer}.{name}.bias": (n_out,)}
        shapes |= {
            f"v.blk.{layer}.{norm}.{part}": (width,) for norm in ("ln1", "ln2") for part in ("weight", "bias")
        }
    if kind == "gemma3":
        shapes |= {"mm.input_projection.weight": (n_embd, width), "mm.soft_emb_norm.weight": (width,)}
    else:
        shapes |= {"mm.model.fc.weight": (width * merged**2, n_embd)}
    tensors = [TensorInfo(name, shape, "f32", 4 * math.prod(shape)) for name, shape in shapes.items()]
    header = encode_header(keys, tensors)
    return write_sparse_file(path, header.data, header.file_bytes)


def _ours(bench: Bench) -> Values:
    values: dict[Row, float] = {}
    with _cases(bench) as cases:
        for case in cases:
            document, _ = ggbench("plan", case.file, "-c", N_CTX, *case.slots, *case.ours)
            (row,), machine = document["rows"], document["machine"]
            sizes = {
                "weights": row["device_weight_bytes"],
                "KV": row["kv_bytes"],
                "compute": row["compute_bytes"],
                "logits": row["output_bytes"],
            }
            if row["draft_bytes"] is not None:
                sizes["draft"] = row["draft_bytes"]
            if machine["mmproj_bytes"]:
                sizes = {"weights": machine["mmproj_bytes"], "compute bound": machine["mmproj_compute_bytes"]}
            values |= {case.row(part): n_bytes / MIB for part, n_bytes in sizes.items()}
    return values


def _theirs(bench: Bench) -> Values:
    values: dict[Row, float] = {}
    with _cases(bench) as cases:
        for case in cases:
            with serving(bench.peers, case.file, N_CTX, (*case.slots, *case.theirs, *_PLAIN)) as served:
                sizes = _sizes(served.log)
            values |= {case.row(part): n_bytes for part, n_bytes in sizes.items()}
    return values


def _sizes(log: Sequence[str]) -> Mapping[str, float]:
    """Return MiB by part: the target's context, its draft's model and context, or a projector's buffers."""
    weights = [float(match[1]) for line in log if (match := _CLIP_WEIGHTS.search(line))]
    compute = [float(match[1]) for line in log if (match := _CLIP_COMPUTE.search(line))]
    if weights:
        return {"weights": weights[-1], "compute bound": sum(compute[-1:])}
    second = [index for index, line in enumerate(log) if _MODEL in line][1:]
    second = second or [index for index, line in enumerate(log) if _CONTEXT in line][1:]
    first = parse_allocations(log[: second[0]] if second else log, PLACES)
    sizes = {
        "weights": _mib(first, "weight"),
        "KV": _mib(first, "kv"),
        "compute": _mib(first, "compute"),
        "logits": _mib(first, "output"),
    }
    if second:
        draft = parse_allocations(log[second[0] :], PLACES)
        sizes["draft"] = sum(_mib(draft, part) for part in ("weight", "kv", "compute", "output"))
    return sizes


def _mib(allocated: Allocated, part: str) -> float:
    return allocated.total(f"{part}_bytes") / MIB


SLOTS = Figure(_ours, _theirs, 1)
