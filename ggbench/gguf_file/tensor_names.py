"""Names of tensors in a file, from the table of the gguf package."""

from __future__ import annotations

from ggbench.gguf_file import gguf_constants


def tensor_name(tensor: str, suffix: str = "weight", block: int | None = None) -> str:
    """Return the name of a `gguf.MODEL_TENSOR` in a file: `ATTN_Q` of block 7 is `blk.7.attn_q.weight`.

    `block` is ignored for a tensor outside the blocks. Raises KeyError for a tensor that gguf does not know.
    """
    base: str = gguf_constants.TENSOR_NAMES[gguf_constants.MODEL_TENSOR[tensor]]
    return f"{base.format(bid=block)}.{suffix}"
