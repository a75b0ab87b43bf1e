"""Size of a model's weights: at a uniform number of bits per weight, or as a file stores them.

A token reads one row of the embedding table, which is not counted, and only the experts that it is routed to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggbench.errors import Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.theory.parameters import Parameters, count_parameters, sums_by_role

Floats = npt.NDArray[np.float64]

_SCHEME = re.compile(r"w(-?[0-9]*\.?[0-9]+)", re.IGNORECASE)
_MOST_BITS = 64.0


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights by role, with its parameter counts."""

    name: str
    """`w16`, or the name of a quant."""
    bpw: float
    parameters: Parameters
    layer_bytes: float
    """Bytes of the decoder layers that every token reads."""
    expert_bytes: float
    """Bytes of all routed experts."""
    lm_head_bytes: float

    @property
    def resident_bytes(self) -> float:
        """Bytes in GPU memory: all weights but the embedding table, which llama.cpp keeps on the CPU."""
        return self.layer_bytes + self.expert_bytes + self.lm_head_bytes

    def read_bytes(self, n_tokens: npt.ArrayLike = 1) -> Floats:
        """Return the bytes read to process `n_tokens` in one batch.

        Of a mixture of experts, only the experts that at least one token is routed to are read; routing is assumed to
        be uniform.
        """
        parameters = self.parameters
        if not 0 < parameters.expert_share < 1:
            return np.broadcast_to(np.float64(self.resident_bytes), np.shape(n_tokens))
        # A share below e^-50 is less than a byte of any model, and denormal numbers are slow.
        exponents = np.log1p(-parameters.expert_share) * np.asarray(n_tokens, np.float64)
        unused = np.exp(np.maximum(exponents, -50.0))
        return np.asarray(self.layer_bytes + self.lm_head_bytes + self.expert_bytes * (1 - unused))


def uniform_weights(parameters: Parameters, bits: float) -> Weights:
    """Return weights of `bits` each, as the article's w16, w8, w6 and w4 (sections 3.3 and 5.1)."""
    return Weights(
        name=f"w{bits:g}",
        bpw=bits,
        parameters=parameters,
        layer_bytes=parameters.layers * bits / 8,
        expert_bytes=parameters.experts * bits / 8,
        lm_head_bytes=parameters.lm_head * bits / 8,
    )


def file_weights(file: ModelFile, name: str) -> Weights:
    """Return the weights as in the tensor table, norms included. Raises Unsupported for a tensor of unknown type."""
    if file.unknown_types:
        raise Unsupported(
            f"{file.name} has tensors of unknown type: {', '.join(file.unknown_types)}", "try a newer ggbench"
        )
    return tensor_weights(file.tensors, count_parameters(file), name)


def tensor_weights(tensors: Sequence[TensorInfo], parameters: Parameters, name: str) -> Weights:
    """Return the weights stored in tensors of known types, norms included."""
    sizes = sums_by_role(tensors, lambda tensor: tensor.n_bytes or 0)
    return Weights(
        name=name,
        bpw=sum(sizes.values()) * 8 / sum(tensor.n_elements for tensor in tensors),
        parameters=parameters,
        layer_bytes=sizes["layers"] + sizes["norms"],
        expert_bytes=sizes["experts"],
        lm_head_bytes=sizes["lm_head"],
    )


def scheme_bits(text: str) -> float | None:
    """Parse the bits per weight of `w16`, `w4.5` or `w16kv16`; None if it is not such a scheme. Raises UsageError."""
    match = _SCHEME.fullmatch(re.sub(r"kv16$", "", text, flags=re.IGNORECASE))
    if match is None:
        return None
    bits = float(match[1])
    if not 0 < bits <= _MOST_BITS:
        raise UsageError(
            f"{text!r} is not a valid number of bits", "write bits per weight after the w, above 0 and up to 64: w4.5"
        )
    return bits
