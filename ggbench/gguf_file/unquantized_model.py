"""A catalog model before any quantization, as a ModelFile: enough to count with, and llama.cpp is not needed."""

from __future__ import annotations

import io

from ggbench.gguf_file.blueprint import build_metadata, build_tensors
from ggbench.gguf_file.encoded_header import encode_header
from ggbench.gguf_file.header import assemble
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import read_header


def build_model(hyper: Hyperparameters, name: str) -> ModelFile:
    """Return the model of this shape with f16 matrices and no file, under this name."""
    header = encode_header(build_metadata(hyper), build_tensors(hyper))
    return assemble([read_header(io.BytesIO(header.data), header.file_bytes, name)], name)
