"""What a model's weights weigh: at so many bits for each, or as a file really stores them.

A token reads the embeddings' one row, which counts nothing, and of the experts only those that it is sent to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.errors import Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.theory.parameters import Parameters, bytes_by_role, count_parameters, is_tied

Floats = npt.NDArray[np.float64]

_SCHEME = re.compile(r"w(-?[0-9]*\.?[0-9]+)", re.IGNORECASE)
_MOST_BITS = 64.0


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights by role, with how many parameters a token computes with."""

    name: str
    """`w16`, or a quant's name."""
    bpw: float
    parameters: Parameters
    layer_bytes: float
    """Of the decoder layers, what every token reads."""
    expert_bytes: float
    """All routed experts."""
    lm_head_bytes: float

    @property
    def resident_bytes(self) -> float:
        """What has to lie in the GPU's memory: all but the table of embeddings, which llama.cpp leaves to the CPU."""
        return self.layer_bytes + self.expert_bytes + self.lm_head_bytes

    def read_bytes(self, n_tokens: npt.ArrayLike = 1) -> Floats:
        """Bytes read to pass that many tokens through the model together.

        Of a mixture of experts, those that at least one token is sent to, each token to any of them alike.
        """
        parameters = self.parameters
        if not 0 < parameters.expert_share < 1:
            return np.broadcast_to(np.float64(self.resident_bytes), np.shape(n_tokens))
        # A share below e^-50 is no byte of any model, and numbers that go on to vanish are slow.
        exponents = np.log1p(-parameters.expert_share) * np.asarray(n_tokens, np.float64)
        unused = np.exp(np.maximum(exponents, -50.0))
        return np.asarray(self.layer_bytes + self.lm_head_bytes + self.expert_bytes * (1 - unused))


def uniform_weights(parameters: Parameters, bits: float, name: str = "") -> Weights:
    """Every weight at so many bits, as the article's w16, w8, w6 and w4 (sections 3.3 and 5.1)."""
    return Weights(
        name=name or f"w{bits:g}",
        bpw=bits,
        parameters=parameters,
        layer_bytes=parameters.layers * bits / 8,
        expert_bytes=parameters.experts * bits / 8,
        lm_head_bytes=parameters.lm_head * bits / 8,
    )


def file_weights(file: ModelFile, name: str) -> Weights:
    """The weights as the tensor table has them, norms included. Raises Unsupported for a tensor of unknown type."""
    if file.unknown_types:
        raise Unsupported(
            f"{file.name} has tensors of unknown type: {', '.join(file.unknown_types)}", "a newer ggbench may know them"
        )
    return tensor_weights(file.tensors, count_parameters(file), name, tied=is_tied(file))


def tensor_weights(tensors: Iterable[TensorInfo], parameters: Parameters, name: str, *, tied: bool) -> Weights:
    """The weights that tensors of known types hold, norms included."""
    table = tuple(tensors)
    sizes = bytes_by_role(table, tied=tied)
    return Weights(
        name=name,
        bpw=sum(sizes.values()) * 8 / sum(tensor.n_elements for tensor in table),
        parameters=parameters,
        layer_bytes=sizes["layers"] + sizes["norms"],
        expert_bytes=sizes["experts"],
        lm_head_bytes=sizes["lm_head"],
    )


def scheme_bits(text: str) -> float | None:
    """Bits of each weight in `w16` or `w4.5`, `w16kv16` too; None where it is not such a scheme. Raises UsageError."""
    match = _SCHEME.fullmatch(re.sub(r"kv16$", "", text, flags=re.IGNORECASE))
    if match is None:
        return None
    bits = float(match[1])
    if not 0 < bits <= _MOST_BITS:
        raise UsageError(f"{text!r} has no size", "write the bits of a weight after the w, above 0 and up to 64: w4.5")
    return bits
