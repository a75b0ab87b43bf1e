"""The constants of the gguf package, imported at their first use and without the rest of the package.

`gguf_constants.Keys` is `gguf.constants.Keys`, and so on. Importing gguf as a whole takes 90 ms, for numpy, yaml and an
HTTP client; its constants alone take 6 ms, and `ggbench --help` and `ggbench models` need neither.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the constants have types of many kinds
    if name.startswith("__"):  # probed by the import system
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ggbench.gguf_file.deferred_package import defer_package

    defer_package("gguf")
    import gguf.constants

    value = getattr(gguf.constants, name)
    globals()[name] = value
    return value


def tensor_name(tensor: str, suffix: str = "weight", block: int | None = None) -> str:
    """Return the name of a `gguf.MODEL_TENSOR` in a file: `ATTN_Q` of block 7 is `blk.7.attn_q.weight`.

    `block` is ignored for a tensor outside the blocks. Raises KeyError for a tensor that gguf does not know.
    """
    base: str = __getattr__("TENSOR_NAMES")[__getattr__("MODEL_TENSOR")[tensor]]
    return f"{base.format(bid=block)}.{suffix}"
