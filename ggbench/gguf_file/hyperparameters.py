"""The hyperparameters that define a model's shape: what config.json says, by llama.cpp's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ggbench.errors import UsageError
from ggbench.record import Record

Parts = tuple[str, ...]
"""Parts of a layer or of the model, by their names in `layouts.toml`."""
_SIGMOID = 2
"""`LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID` of llama-hparams.h."""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Differences of an architecture from the plain transformer of `llama`."""

    needs: tuple[str, ...] = ()
    """Optional hyperparameters that it requires."""
    allows: tuple[str, ...] = ()
    """Optional hyperparameters that it allows."""
    mixers: dict[str, Parts] = msgspec.field(
        default_factory=lambda: {"*": ("attention", "output of attention", "norms of heads")}
    )
    """Parts of a layer besides its feed-forward, by the letter of `layer_pattern`; the first in drafting layers."""
    letters: str = ""
    """Letters of its `layer_pattern`, which it then requires."""
    dense: Parts = ("dense",)
    experts: Parts = ("router", "experts", "selection bias", "shared expert")
    hashed: Parts = ()
    """Parts of a layer that chooses its experts by the token alone."""
    norms: tuple[Parts, Parts, Parts] = ("attn_norm",), ("ffn_norm",), ()
    """Before the first part of a layer, between the two, and after the second."""
    qk_norm: bool = False
    """Whether each head's Q and K have norms."""
    outside: Parts = ("input", "output_norm", "output", "rope factors")
    compression: dict[str, int] = {}
    """Positions that share an entry of a compressed cache, by letter."""
    fixed_keys: dict[str, Any] = {}
    """Keys that llama.cpp requires, and on which neither sizes nor the work of a token depend."""
    n_embd_of_heads: bool = False
    """Whether llama.cpp requires the heads' total width to equal the model's."""
    gating: int = 0
    """The function that scores experts, if each has a selection bias: `LLAMA_EXPERT_GATING_FUNC_TYPE_*`."""
    experts_type: str = ""
    """Type in which its experts are trained and published, whatever the quant; empty if it is the quant's."""


class _Layouts(Record):
    """The file that describes them."""

    parts: dict[str, str]
    keys: dict[str, str]
    families: dict[str, Family]


LAYOUTS = msgspec.toml.decode(Path(__file__).with_name("layouts.toml").read_bytes(), type=_Layouts)
FAMILIES = LAYOUTS.families
ARCHITECTURES = tuple(FAMILIES)
"""llama.cpp's names of architectures with twins that need no file."""
_OPTIONAL = tuple(
    dict.fromkeys(
        name for family in FAMILIES.values() for name in (*family.needs, *family.allows) if name != "head_dim"
    )
)
_MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS of llama.cpp's src/llama-hparams.h."""
_Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
_OptionalCount = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Positive = Annotated[float, Meta(gt=0)]


class Hyperparameters(Record, forbid_unknown_fields=True):
    """The shape of a model; UsageError names a field that the architecture does not allow. 0 means none."""

    architecture: str
    """llama.cpp's name, one of `ARCHITECTURES`."""
    n_layer: Annotated[int, Meta(ge=1, le=_MOST_LAYERS)]
    n_embd: _Count
    n_head: _Count
    n_head_kv: _Count
    n_ff: _Count
    """Width of a dense feed-forward, or of an expert if `n_ff_expert` is 0."""
    n_vocab: _Count
    n_ctx_train: _Count
    head_dim: _Count | None = None
    """None: `n_embd // n_head`. With a latent cache, the width of Q, with and without rotary positions."""
    rope_freq_base: _Positive = 1e6
    norm_rms_eps: _Positive = 1e-6
    tied_embeddings: bool = False
    """Whether the output reuses the input embedding table, which the file then contains once."""
    qk_norm: bool = False
    """Whether Q and K of each head have a norm, if the architecture does not say so."""
    rope_freqs: bool = False
    """Whether the file has a factor for each rotary frequency, as Llama's have since 3.1."""
    layer_pattern: str = ""
    """A letter for each layer, repeated to `n_layer`: `*` attention, `W` attention in a window, `M` a recurrent state.

    `C` and `H` attend to a window and to 4 or 128 positions at a time, `N` is `M` that also uses a table of n-grams. In
    `nemotron_h` they are all of a layer, besides `E` experts and `-` a feed-forward. Empty: all layers have attention,
    and the architecture says which of them in a window.
    """
    n_layer_nextn: _OptionalCount = 0
    """Layers after the last that only draft (NextN, MTP), if the files contain them; not counted in `n_layer`."""
    nextn_embeddings: bool = False
    """Whether those have an embedding and an output matrix of their own."""
    n_rot: _OptionalCount = 0
    """Elements of a head with rotary positions, if not all."""
    sliding_window: _OptionalCount = 0
    """Positions kept by windowed layers."""
    head_dim_window: _OptionalCount = 0
    """Width of a head in windowed layers, if not `head_dim`."""
    n_head_kv_window: _OptionalCount = 0
    """KV heads in windowed layers, if not `n_head_kv`; the layers without a window then use K as V."""
    n_layer_shared_kv: _OptionalCount = 0
    """Number of last layers that attend to the KV of earlier ones."""
    n_ff_shared_kv: _OptionalCount = 0
    """Width of the feed-forward in those layers, if not `n_ff`."""
    n_embd_per_layer: _OptionalCount = 0
    """Width of each layer's own embedding of a token, or of each row of a table of n-grams."""
    n_row_ngram: _OptionalCount = 0
    """Rows of the table of n-grams, padding and all."""
    n_expert: _OptionalCount = 0
    n_expert_used: _OptionalCount = 0
    n_ff_expert: _OptionalCount = 0
    n_ff_shared_expert: _OptionalCount = 0
    """Width of the feed-forward that every token passes in addition to its experts."""
    n_layer_dense: _OptionalCount = 0
    """Number of first layers with one feed-forward of `n_ff` and no experts."""
    n_layer_hash: _OptionalCount = 0
    """Number of first layers whose experts are chosen by the token alone."""
    n_expert_every: _OptionalCount = 0
    """Period of layers, the last of which has experts; 0: all layers have them."""
    n_embd_expert: _OptionalCount = 0
    """Width of the input and output of experts, if not `n_embd`."""
    expert_bias: bool = False
    """Whether each expert has a selection bias, and scores are sigmoids, if the architecture does not say so."""
    kv_lora_rank: _OptionalCount = 0
    """Width of the latent from which K and V are computed (MLA); the cache keeps the latent."""
    q_lora_rank: _OptionalCount = 0
    v_head_dim: _OptionalCount = 0
    whole_kv: bool = False
    """Whether the file was made before llama.cpp cached the latent: it then caches K and V of every head."""
    n_group_out: _OptionalCount = 0
    """Groups of heads, each with an output matrix of its own of rank `o_lora_rank`."""
    o_lora_rank: _OptionalCount = 0
    indexer_n_head: _OptionalCount = 0
    """Heads that choose which positions are attended to (DSA); they have a cache of their own."""
    indexer_head_dim: _OptionalCount = 0
    indexer_top_k: _OptionalCount = 0
    ssm_conv: _OptionalCount = 0
    """Positions of the convolution before the recurrence."""
    ssm_state: _OptionalCount = 0
    """Width of a head's state: Mamba's, or of K and V in linear attention."""
    ssm_inner: _OptionalCount = 0
    """Width of all heads of the recurrence together."""
    ssm_n_head: _OptionalCount = 0
    ssm_n_group: _OptionalCount = 0

    def __post_init__(self) -> None:
        if problem := next(self._problems(), ""):
            raise UsageError(problem, "check the model's entry in models.toml")

    def _problems(self) -> Iterator[str]:
        """Yield which fields the architecture lacks or does not have, and which do not go together."""
        family = FAMILIES.get(self.architecture)
        if family is None:
            yield f"architecture {self.architecture!r} is unknown, known are {', '.join(ARCHITECTURES)}"
            return
        lacking = (name for name in family.needs if not getattr(self, name))
        yield from (f"{self.architecture} needs {name}" for name in lacking)
        unknown = set(_OPTIONAL) - {*family.needs, *family.allows}
        given = (name for name in _OPTIONAL if name in unknown and getattr(self, name))
        yield from (f"{name} is given, but {self.architecture} has none" for name in given)
        yield from self._contradictions(family)

    def _contradictions(self, family: Family) -> Iterator[str]:
        if bool(family.letters) != bool(self.layer_pattern) or set(self.layer_pattern) - set(family.letters):
            yield f"layer_pattern of {self.architecture} has the letters {family.letters!r}, not {self.layer_pattern!r}"
        if family.n_embd_of_heads and self.n_embd_head * self.n_head != self.n_embd:
            yield f"n_embd {self.n_embd} is not n_head {self.n_head} x head_dim {self.n_embd_head}"
        if self.n_head % self.n_head_kv:
            yield f"n_head {self.n_head} is not a multiple of n_head_kv {self.n_head_kv}"
        if not bool(self.n_expert) <= self.n_expert_used <= self.n_expert:
            yield f"n_expert_used {self.n_expert_used} is not 1 to n_expert {self.n_expert}"
        if self.kv_lora_rank and self.n_rot >= self.n_embd_head:
            yield f"n_rot {self.n_rot} is not below head_dim {self.n_embd_head}"

    @property
    def n_embd_head(self) -> int:
        return self.n_embd // self.n_head if self.head_dim is None else self.head_dim

    @property
    def expert_gating(self) -> int:
        """The number of the function that scores experts, if each has a selection bias; else 0."""
        gating = _SIGMOID if self.expert_bias else FAMILIES[self.architecture].gating
        return gating if self.n_expert else 0
