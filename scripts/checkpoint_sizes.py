"""The tables behind scripts/checkpoint_sizes; exit code 1 where a cell differs by more than what is explained.

Sizes are counted from the configs of the catalog's Qwen1.5 models, without torch and without a file. The article's
cells are those of `ggbench published`: file sizes in GB of 10^9, memory in GB of 2^30, of a GeForce RTX 4090 of 24 GiB.
What differs has one of these reasons:

- the file of 0.5B and its AWQ file hold `lm_head`, which the config ties to the embedding and nothing loads;
- GPTQ's feed-forward is padded: 14B from 13,696 to 14,336, so that it can be shared by several devices
  (QwenLM/Qwen3, issue 258), and 32B, by the size of its file, from 27,392 to 27,648, which nobody states;
- Transformers of that time (before 4.48) kept cosine and sine of all 32,768 positions in every layer, two bytes each
  (`Qwen2RotaryEmbedding._set_cos_sin_cache`);
- exllamav2 keeps scratch for 2,048 tokens of 8 sequences (`scratch_space_fixed` in AutoGPTQ's `qlinear_exllamav2.py`);
- AutoAWQ's fused layers replace those tables, and keep a cache of 2,048 tokens (`WindowedCache`); the article's cells
  are below that, which nothing here explains: a cache of 512 tokens, which its script names as well, with its rotary
  table would leave 0.02, 0.06, 0.09, 0.17 and 0.32 GiB.

Memory is `torch.cuda.memory_allocated()` after loading (noooop/zerollama, tutorial/advance/0x02/use_transformers.py).
What is left is of what loading leaves behind.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ggbench.extras.transformers.checkpoint import Checkpoint
from ggbench.extras.transformers.config_json import Config, linear_module
from ggbench.extras.transformers.storage import METHODS
from ggbench.gguf_file.model_file import ModelFile
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedFigure, PublishedRow, load_published
from ggbench.units import GIB, format_fixed

SIZES = ("0.5b", "1.8b", "4b", "7b", "14b", "32b", "72b", "110b")
QUANTS = ("bf16", "int8", "nf4", "nf4-dq", "gptq-int4", "awq-int4")
CELLS: Mapping[str, tuple[str, str]] = {
    "hf-transformers": ("6.3.1", "bf16"),
    "bitsandbytes-int8": ("6.3.1", "int8"),
    "bitsandbytes-int4": ("6.3.1", "nf4"),
    "autogptq-exllamav2": ("6.3.3", "gptq-int4"),
    "autoawq-gemm-fused": ("6.3.4", "awq-int4"),
}
"""Table and method of each system's rows."""
PADDED = {("gptq-int4", "14b"): 14_336, ("gptq-int4", "32b"): 27_648}
"""`intermediate_size` of published checkpoints that are padded."""
WITH_OUTPUT = (("bf16", "0.5b"), ("awq-int4", "0.5b"))
"""Files that hold the output beside the embedding that it is tied to."""
ROUNDING = 0.005
"""Half of the last digit that is printed, in GB."""
FILE_SHARE = 0.001
"""Most by which a file may differ beyond that: the sizes of shards, each rounded, are added up."""
MEMORY_BYTES, MEMORY_SHARE = 0.025 * GIB, 0.015
"""Most that memory may be above what is counted, and that share of it."""
_SCRATCH_ROWS = 2048 * 8
_AWQ_TOKENS = 2048
_UNEXPLAINED = (("awq-int4", "32b", "file"),)
"""The article prints 21 GB for a file of 19.2 GB by its own config; 72B's and 110B's AWQ agree."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One published size beside what is counted."""

    size: str
    quant: str
    what: str
    """`file` or `memory`."""
    weight_bytes: int
    parts: tuple[tuple[str, int], ...]
    """What is added to the weights, each with its reason."""
    published: PublishedFigure

    @property
    def counted_bytes(self) -> int:
        """Weights and parts."""
        return self.weight_bytes + sum(n_bytes for _, n_bytes in self.parts)

    @property
    def published_bytes(self) -> float | None:
        """None where a word is printed."""
        unit = 1e9 if self.what == "file" else GIB
        return None if self.published.value is None else self.published.value * unit

    @property
    def is_explained(self) -> bool | None:
        """Whether what is left is small; None where a word is printed, or nothing explains the cell."""
        if self.published_bytes is None or (self.quant, self.size, self.what) in _UNEXPLAINED:
            return None
        left = self.published_bytes - self.counted_bytes
        if self.what == "file":
            return abs(left) <= ROUNDING * 1e9 + FILE_SHARE * self.published_bytes
        return (
            None
            if self.quant == "awq-int4"
            else -ROUNDING * GIB <= left <= MEMORY_BYTES + MEMORY_SHARE * self.counted_bytes
        )


@functools.cache
def counted(size: str, quant: str, n_ff: int | None = None) -> ModelFile:
    """Return the model of this size as one method stores it; `n_ff` is that of a padded checkpoint."""
    model = load_catalog().model(f"qwen1.5-{size}")
    hyper = model.hyper
    values = {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": hyper.n_embd,
        "intermediate_size": n_ff or hyper.n_ff,
        "num_hidden_layers": hyper.n_layer,
        "num_attention_heads": hyper.n_head,
        "num_key_value_heads": hyper.n_head_kv,
        "vocab_size": hyper.n_vocab,
        "max_position_embeddings": hyper.n_ctx_train,
        "tie_word_embeddings": size == "0.5b",
    }
    return Checkpoint(Config(model.id, values), b"").model_file(METHODS[quant])


def cells() -> Iterator[Cell]:
    """Yield every cell of the tables that states a size of a quantized or unquantized model."""
    for row in load_published():
        if row.source != "article" or row.table not in ("6.3.1", "6.3.3", "6.3.4") or row.system not in CELLS:
            continue
        for what, column in (("file", "file_size_gb"), ("memory", "memory_gb")):
            if column in row.figures:
                yield _cell(row, what, row.figures[column])


def _cell(row: PublishedRow, what: str, published: PublishedFigure) -> Cell:
    size, quant = row.size.lower(), CELLS[row.system][1]
    file = counted(size, quant, PADDED.get((quant, size)))
    parts = tuple(_file_parts(size, quant, file) if what == "file" else _memory_parts(quant, file))
    plain = counted(size, quant).weight_bytes or 0
    padding = (file.weight_bytes or 0) - plain
    if padding:
        parts = (("padded feed-forward", padding), *parts)
    return Cell(size, quant, what, plain, parts, published)


def _file_parts(size: str, quant: str, file: ModelFile) -> Iterator[tuple[str, int]]:
    if (quant, size) in WITH_OUTPUT:
        yield "lm_head, which is tied", 2 * (file.n_vocab or 0) * file.n_embd


def _memory_parts(quant: str, file: ModelFile) -> Iterator[tuple[str, int]]:
    if quant == "awq-int4":
        kept = sum(rows.k_width + rows.v_width for state in file.states for rows in state.kept)
        yield f"cache of {_AWQ_TOKENS:,} tokens", 2 * kept * _AWQ_TOKENS
        return
    yield "rotary tables", 2 * 2 * (file.n_ctx_train or 0) * file.head_dim_k * file.n_layer
    if quant == "gptq-int4":
        matrices = [each.shape for each in file.tensors if linear_module(each.name)]
        yield (
            "exllamav2's scratch",
            max(2 * n_in * n_out + 4 * n_out * _SCRATCH_ROWS for n_in, n_out in matrices) + 256,
        )


def bpw_table() -> list[str]:
    """Lines of the table of bits per weight, and the weights in GiB."""
    lines = [f"| Qwen1.5 |{''.join(f' {quant} |' for quant in QUANTS)}", f"|---|{'---:|' * len(QUANTS)}"]
    for size in SIZES:
        files = [counted(size, quant) for quant in QUANTS]
        texts = (f" {format_fixed(file.bpw or 0, 2)} ({_gib(file.weight_bytes or 0)}) |" for file in files)
        lines.append(f"| {size.upper()} |{''.join(texts)}")
    return lines


def cells_table(found: Sequence[Cell]) -> list[str]:
    """Lines of the table of cells: in GB of 10^9 for files, in GiB for memory."""
    lines = [
        "| Qwen1.5 | quant | what | published | weights | and | sum | left |",
        "|---|---|---|---:|---:|---|---:|---:|",
    ]
    for cell in found:
        size = _gb if cell.what == "file" else _gib
        added = ", ".join(f"{reason} {size(n_bytes)}" for reason, n_bytes in cell.parts)
        left, published = "", cell.published_bytes
        if published is not None:
            missing = published - cell.counted_bytes
            percent = f"{100 * missing / cell.counted_bytes:+.1f} %".replace("-", "−")
            left = percent if cell.what == "file" else _gib(missing)
        mark = {True: "", False: " ✗", None: " ?" if published is not None else ""}[cell.is_explained]
        named = (cell.size.upper(), cell.quant, cell.what, cell.published.printed)
        lines.append(
            f"| {' | '.join((*named, size(cell.weight_bytes), added, size(cell.counted_bytes), left + mark))} |"
        )
    return lines


def _gb(n_bytes: float) -> str:
    return format_fixed(n_bytes / 1e9, 3 if n_bytes < 1e9 else 2)


def _gib(n_bytes: float) -> str:
    """Two decimals; a zero has no sign."""
    return format_fixed(round(n_bytes / GIB, 2) + 0.0, 2).replace("-", "−")


def main() -> int:
    """Print both tables."""
    print("BPW, and weights in GiB, from config.json alone:\n")
    print("\n".join(bpw_table()))
    print("\nFiles in GB of 10^9, memory in GB of 2^30; ? is not explained, ✗ is beyond what is explained:\n")
    found = list(cells())
    print("\n".join(cells_table(found)))
    return 1 if any(cell.is_explained is False for cell in found) else 0


if __name__ == "__main__":
    sys.exit(main())
