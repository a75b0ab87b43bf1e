"""A catalog model before any quantization, as a ModelFile: enough to count with, and llama.cpp is not needed."""

from __future__ import annotations

import io

from ggbench.gguf_file.blueprint import draw_metadata, draw_tensors
from ggbench.gguf_file.encoded_header import encode_header
from ggbench.gguf_file.header import assemble
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import read_header


def draw_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """The model of this shape with f16 matrices and no file; `name` is what to call it."""
    header = encode_header(draw_metadata(hyper), draw_tensors(hyper))
    return assemble([read_header(io.BytesIO(header.data), header.file_bytes, name)], name)
