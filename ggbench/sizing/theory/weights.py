"""Parameters of a model, and their size at uniform bits per weight or as stored in a file.

Counted from the tensor table, so GQA, experts, biases and tied embeddings need no special formula. Norms are
not counted as parameters, as in the article: they are fewer than one in ten thousand.

A token reads one row of the embedding table, which is not counted, and only its own experts.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from ggbench.errors import Unsupported, UsageError
from ggbench.gguf_file.layout import count_params
from ggbench.gguf_file.model_file import ModelFile, TensorInfo, layer_of
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.models.reference import ModelRef
from ggbench.record import Record

Role = Literal["layers", "experts", "lm_head", "embedding", "norms"]

_EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")

_SCHEME = re.compile(r"w(-?[0-9]*\.?[0-9]+)", re.IGNORECASE)
_MOST_BITS = 64.0


class Parameters(Record):
    """Parameter counts of a model by role."""

    layers: int
    """Parameters in the decoder layers used by every token: attention, dense and shared feed-forward, routers."""
    experts: int
    """Parameters of all routed experts in the decoder layers; 0 in a dense model."""
    lm_head: int
    """Parameters of the output matrix, or of the embedding table if tied."""
    embedding: int
    """Tables from which a token reads one row; 0 if the only one is tied to the output."""
    n_expert: int = 0
    n_expert_used: int = 0

    @property
    def expert_share(self) -> float:
        """Fraction of the experts active for one token."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def layers_active(self) -> int:
        """Parameters of the decoder layers active for one token."""
        return self.layers + round(self.experts * self.expert_share)

    @property
    def active(self) -> int:
        """Parameters active for one token: layers and output."""
        return self.layers_active + self.lm_head

    @property
    def total(self) -> int:
        """All parameters except norms."""
        return self.layers + self.experts + self.lm_head + self.embedding


class Weights(Record):
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
        """Without tables from which a token reads one row, which llama.cpp keeps on the CPU."""
        return self.layer_bytes + self.expert_bytes + self.lm_head_bytes

    def read_bytes(self, n_tokens: float = 1) -> float:
        """Return the bytes read to process `n_tokens` in one batch.

        In a mixture of experts, only experts used by at least one token are read; routing is assumed uniform.
        """
        parameters = self.parameters
        if not 0 < parameters.expert_share < 1:
            return self.resident_bytes
        unused = math.exp(n_tokens * math.log1p(-parameters.expert_share))
        return self.layer_bytes + self.lm_head_bytes + self.expert_bytes * (1 - unused)


def count_parameters(file: ModelFile) -> Parameters:
    """Count the parameters of a model by role.

    Source: the article, sections 3.1 and 5.2.1. Raises Unsupported if a required tensor is missing.
    """
    counts = _sums(file.tensors, _decoding_layers(file))[0].copy()
    needed: dict[Role, str] = {"lm_head": "output.weight and token_embd.weight", "layers": "blk.0.*"}
    for role, tensors in needed.items():
        if not counts[role]:
            raise Unsupported(
                f"{file.name} lacks {tensors}, which ggbench limits needs",
                "use a complete model with all its shards",
            )
    del counts["norms"]
    return Parameters(**counts, n_expert=file.n_expert, n_expert_used=file.n_expert_used)


def is_tied(tensors: Iterable[TensorInfo]) -> bool:
    """Return whether the output reuses the input embedding table."""
    return not any(tensor.name == "output.weight" for tensor in tensors)


@functools.lru_cache(maxsize=16)
def _sums(tensors: tuple[TensorInfo, ...], n_layer: int) -> tuple[dict[Role, int], dict[Role, int]]:
    """Sum up elements and bytes by role, for tensors outside layers and in the first `n_layer`."""
    elements: dict[Role, int] = {"layers": 0, "experts": 0, "lm_head": 0, "embedding": 0, "norms": 0}
    n_bytes = elements.copy()
    tied = is_tied(tensors)
    for tensor in tensors:
        role = _role(tensor.name, n_layer, tied=tied)
        if role is not None:
            elements[role] += tensor.n_elements
            n_bytes[role] += tensor.n_bytes or 0
    return elements, n_bytes


@functools.lru_cache(maxsize=1 << 14)
def _role(name: str, n_layer: int, *, tied: bool) -> Role | None:
    """Return the role of a tensor; None in a layer from `n_layer` on, which decoding does not run."""
    if name in _EMBEDDINGS:
        return "lm_head" if tied and name == "token_embd.weight" else "embedding"
    if (layer_of(name) or 0) >= n_layer:
        return None
    if "_exps." in name:
        return "experts"
    if "norm" in name or name.startswith("rope_freqs"):
        return "norms"
    return "lm_head" if name.startswith("output.") else "layers"


def uniform_weights(parameters: Parameters, bits: float) -> Weights:
    """Return weights of `bits` each, like the article's w16, w8, w6 and w4 (sections 3.3 and 5.1)."""
    return Weights(
        name=f"w{bits:g}",
        bpw=bits,
        parameters=parameters,
        layer_bytes=parameters.layers * bits / 8,
        expert_bytes=parameters.experts * bits / 8,
        lm_head_bytes=parameters.lm_head * bits / 8,
    )


def file_weights(file: ModelFile, name: str) -> Weights:
    """Return the weights as in the tensor table, norms included.

    Raises Unsupported for a tensor of unknown type, or without any.
    """
    if file.unknown_types:
        raise Unsupported(
            f"{file.name} has tensors of unknown type: {', '.join(file.unknown_types)}", "try a newer ggbench"
        )
    elements, sizes = _sums(file.tensors, _decoding_layers(file))
    n_elements = sum(elements.values())
    if not n_elements:
        raise Unsupported(f"{file.name} has no tensor that decoding reads", "use another file")
    return Weights(
        name=name,
        bpw=sum(sizes.values()) * 8 / n_elements,
        parameters=count_parameters(file),
        layer_bytes=sizes["layers"] + sizes["norms"],
        expert_bytes=sizes["experts"],
        lm_head_bytes=sizes["lm_head"],
    )


def weights_by_place(
    file: ModelFile, placed: Iterable[tuple[TensorInfo, Mapping[int, float]]]
) -> dict[int, Weights]:
    """Return the weights that decoding reads from each place, of tensors with their shares.

    Raises Unsupported for a tensor of unknown type.
    """
    whole, n_layer, tied = file_weights(file, file.name), _decoding_layers(file), is_tied(file.tensors)
    held: dict[int, dict[Role | None, float]] = {}
    for tensor, shares in placed:
        role = _role(tensor.name, n_layer, tied=tied)
        for place, share in shares.items():
            of_place = held.setdefault(place, {})
            of_place[role] = of_place.get(role, 0) + share * (tensor.n_bytes or 0)
    return {
        place: replace(
            whole,
            layer_bytes=sizes.get("layers", 0) + sizes.get("norms", 0),
            expert_bytes=sizes.get("experts", 0),
            lm_head_bytes=sizes.get("lm_head", 0),
        )
        for place, sizes in held.items()
    }


def _decoding_layers(file: ModelFile) -> int:
    """Return the number of layers without draft (NextN) layers, which llama.cpp does not run to decode a token."""
    return max(1, file.n_layer - file.n_layer_nextn)


def scheme_bits(text: str) -> float | None:
    """Parse the bits per weight of `w16`, `w4.5` or `w16kv16`; None if it is not such a scheme. Raises UsageError."""
    match = _SCHEME.fullmatch(re.sub(r"kv16$", "", text, flags=re.IGNORECASE))
    if match is None:
        return None
    bits = float(match[1])
    if not 0 < bits <= _MOST_BITS:
        raise UsageError(
            f"{text!r} is not a valid number of bits",
            "write bits per weight after the w, above 0 and up to 64: w4.5",
        )
    return bits


SCHEMES = ("w16", "w8", "w6", "w4")
"""Default schemes for a catalog model."""


class CountedModel(Record):
    """A model's shape with its weights in the requested quants and schemes."""

    model: str
    """MODEL as typed, without `:QUANT`; printable."""
    file: ModelFile
    """The model's shape; tensor types are those of one of its quants, or f16."""
    weights: tuple[Weights, ...]


def count_model(ref: ModelRef) -> CountedModel:
    """Resolve a model and count its weights in the schemes (`w16`, `w4.5`) and quants (`q4_k_m`) given as QUANTs.

    The default is w16, w8, w6 and w4 for a catalog model, the tensor types for a path. Raises like `resolve`,
    UsageError for a scheme without a width, Unsupported for an unknown tensor type.
    """
    from ggbench.models.targets import resolve  # slow to import

    known = _known_model(ref.require_gguf())
    if known is not None:
        ref = replace(
            ref, kind="twin", name=known.id, label=known.id, quants=ref.quants or _published_schemes(known)
        )
    widths = [width for width in map(scheme_bits, ref.quants) if width is not None]
    quants = [name for name in ref.quants if scheme_bits(name) is None]
    is_shape = bool(widths and not quants)
    targets = resolve(ref.of_quants(*(["f16"] if known and is_shape else quants)), headers_only=True)
    first = targets[0].header()
    own = () if is_shape else tuple(file_weights(each.header(), each.quant) for each in targets)
    uniform = (uniform_weights(count_parameters(first), width) for width in widths)
    return CountedModel(ref.label, first, (*own, *uniform))


def _published_schemes(known: CatalogModel) -> Sequence[str]:
    """Return the default schemes; of a mixture only those up to its largest published file, and always w4."""
    if not known.hyper.n_expert or not known.file_bytes:
        return SCHEMES
    most_bits = 8 * max(known.file_bytes.values()) / count_params(known.hyper)
    return [name for name in SCHEMES if name == "w4" or (scheme_bits(name) or 0) <= 1.1 * most_bits]


def _known_model(ref: ModelRef) -> CatalogModel | None:
    """Return the model of the catalog, or that which has the repo."""
    if ref.kind == "hub":
        return load_catalog().of_repo(ref.name)
    return load_catalog().model(ref.name) if ref.kind in ("catalog", "twin") else None
