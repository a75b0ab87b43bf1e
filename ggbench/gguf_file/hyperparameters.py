"""The hyperparameters that define a model's shape: what config.json says, by llama.cpp's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ggbench.errors import UsageError

_ROUTED = ("n_expert", "n_expert_used", "n_ff_expert")
_SHARED = (*_ROUTED, "n_ff_shared_expert")
_LATENT = ("kv_lora_rank", "n_rot", "v_head_dim", "head_dim")
_SSM = ("ssm_conv", "ssm_state", "ssm_inner", "ssm_n_head", "ssm_n_group")
_INDEXER = ("indexer_n_head", "indexer_head_dim", "indexer_top_k")
_DELTA_NET = (*_SSM, "head_dim", "n_rot")

Parts = tuple[str, ...]
"""Parts of a layer or of the model, by their names in `layout.py`."""
_Norms = tuple[Parts, Parts, Parts]
BEFORE: _Norms = ("attn_norm",), ("ffn_norm",), ()
BETWEEN: _Norms = ("attn_norm",), ("post_attention_norm",), ()
AROUND: _Norms = ("attn_norm",), ("post_attention_norm", "ffn_norm"), ("post_ffw_norm",)
AFTER: _Norms = (), ("post_attention_norm",), ("post_ffw_norm",)
"""Norms of a layer: before its first part, between the two, and after the second."""
_HEADS = ("output of attention", "norms of heads")
_BIASED = ("attention with biases", *_HEADS)
_ALL_HEADS = ("attention", "output of attention", "norms of q and k")
_GATED = ("attention with a gate", *_HEADS)
_MLA = (
    "latent q", "whole q", "latent k and v", "split k and v", "whole k and v", "output of latent attention", "indexer",
)  # fmt: skip
_KDA = ("delta attention", "low-rank gate of delta attention", "padded decay", "output of delta attention")
_ROUTED_PARTS = ("router", "experts", "selection bias", "shared expert")
_GATED_SHARED = ("router", "experts", "gate of the shared expert", "shared expert")
_SIGMOID, _SQRT_SOFTPLUS = 2, 4
"""`LLAMA_EXPERT_GATING_FUNC_TYPE_*` of llama-hparams.h."""


class Family(NamedTuple):
    """Differences of an architecture from the plain transformer of `llama`."""

    needs: tuple[str, ...] = ()
    """Optional hyperparameters that it requires."""
    allows: tuple[str, ...] = ()
    """Optional hyperparameters that it allows."""
    mixers: Mapping[str, Parts] = {"*": ("attention", *_HEADS)}
    """Parts of a layer besides its feed-forward, by the letter of `layer_pattern`; the first in drafting layers."""
    letters: str = ""
    """Letters of its `layer_pattern`, which it then requires."""
    dense: Parts = ("dense",)
    experts: Parts = _ROUTED_PARTS
    hashed: Parts = ()
    """Parts of a layer that chooses its experts by the token alone."""
    norms: _Norms = BEFORE
    qk_norm: bool = False
    """Whether each head's Q and K have norms."""
    outside: Parts = ("input", "output_norm", "output", "rope factors")
    compression: Mapping[str, int] = {}
    """Positions that share an entry of a compressed cache, by letter."""
    fixed_keys: Mapping[str, object] = {}
    """Keys that llama.cpp requires, and on which neither sizes nor the work of a token depend."""
    n_embd_of_heads: bool = False
    """Whether llama.cpp requires the heads' total width to equal the model's."""
    gating: int = 0
    """The function that scores experts, if each has a selection bias."""
    experts_type: str = ""
    """Type in which its experts are trained and published, whatever the quant; empty if it is the quant's."""


_QWEN35 = Family(
    needs=_DELTA_NET,
    allows=("n_layer_nextn",),
    mixers={"*": _GATED, "M": ("delta net", "beta and alpha")},
    letters="M*",
    norms=BETWEEN,
    qk_norm=True,
    experts=_GATED_SHARED,
    fixed_keys={"rope.dimension_sections": [11, 11, 10, 0]},
)
_QWEN4EXP = _QWEN35._replace(
    needs=(*_DELTA_NET, *_SHARED, *_INDEXER, "n_embd_per_layer", "n_row_ngram"),
    allows=(),
    mixers={
        "*": (*_GATED, "indexer of blocks"),
        "M": ("delta net", "beta and alpha"),
        "N": ("delta net", "beta and alpha", "use of n-grams"),
    },
    letters="M*N",
    norms=(("narrow hyper-connection of attention",), ("narrow hyper-connection of feed-forward",), ()),
    outside=("input", "last narrow hyper-connection", "output", "embeddings of n-grams"),
    compression={"*": 4},
    fixed_keys={
        "rope.dimension_sections": [11, 11, 10, 0],
        "hyper_connection.count": 4,
        "hyper_connection.low_rank": 320,
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": 8,
        "ple.conv_kernel": 4,
        "ple.eos_token_id": 0,
        "ple.layer_multipliers": [23703573157769, 20109073645365, 8052911324071],
    },
)
_MHC_KEYS = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 20,
    "hyper_connection.epsilon": 1e-6,
}
_MHC: _Norms = (
    ("attn_norm", "hyper-connection of attention"), ("ffn_norm", "hyper-connection of feed-forward"), (),
)  # fmt: skip
_DEEPSEEK4 = ("attention by groups",)
_DSA = Family(
    needs=(*_SHARED, *_LATENT, *_INDEXER, "q_lora_rank"),
    allows=("n_layer_dense", "n_layer_nextn"),
    mixers={"*": _MLA},
    gating=_SIGMOID,
)
_NEMOTRON = Family(
    needs=(*_SSM, "head_dim"),
    mixers={"*": ("attention", *_HEADS), "M": ("mamba 2",)},
    letters="M*-",
    norms=(("attn_norm",), (), ()),
    dense=("ungated dense",),
    fixed_keys={"attention.layer_norm_epsilon": 1e-5},
)
_LFM2 = Family(
    needs=("ssm_conv",),
    mixers={"*": ("attention", *_HEADS), "M": ("short convolution",)},
    letters="M*",
    qk_norm=True,
    n_embd_of_heads=True,
    outside=("input", "token_embd_norm", "output"),
)
FAMILIES: Mapping[str, Family] = {
    "llama": Family(allows=("n_expert", "n_expert_used")),
    "mistral3": Family(),
    "smollm3": Family(),
    "granite": Family(fixed_keys={"logit_scale": 1.0}),
    "seed_oss": Family(mixers={"*": _BIASED}, norms=BETWEEN),
    "olmo2": Family(needs=("sliding_window",), mixers={"*": _ALL_HEADS}, norms=AFTER, n_embd_of_heads=True),
    "qwen2": Family(mixers={"*": _BIASED}, n_embd_of_heads=True),
    "qwen2moe": Family(needs=_SHARED, mixers={"*": _BIASED}, experts=_GATED_SHARED, n_embd_of_heads=True),
    "qwen3": Family(qk_norm=True),
    "qwen3moe": Family(needs=_ROUTED, qk_norm=True),
    "qwen3next": _QWEN35._replace(
        needs=(*_DELTA_NET, *_SHARED),
        mixers={"*": _GATED, "M": ("delta net", "beta beside alpha")},
        fixed_keys={},
    ),
    "qwen35": _QWEN35,
    "qwen35moe": _QWEN35._replace(needs=(*_DELTA_NET, *_SHARED)),
    "qwen4exp": _QWEN4EXP,
    "gemma3": Family(needs=("sliding_window",), norms=AROUND, qk_norm=True),
    "gemma4": Family(
        needs=("sliding_window", "head_dim", "head_dim_window"),
        allows=(*_ROUTED, "n_head_kv_window", "n_layer_shared_kv", "n_ff_shared_kv", "n_embd_per_layer"),
        mixers={"*": ("attention", *_HEADS), "W": ("attention", *_HEADS)},
        letters="W*",
        experts=("router", "scaled experts", "dense"),
        norms=(
            ("attn_norm",),
            ("post_attention_norm", "ffn_norm"),
            ("post_ffw_norm", "scale of the layer", "embedding of the layer"),
        ),
        qk_norm=True,
        outside=("input", "output_norm", "output", "all rope factors", "embeddings of layers"),
    ),
    "muse-glimmer": Family(
        needs=("sliding_window", "head_dim"),
        mixers={"*": ("attention", *_HEADS, "gate of attention")},
        norms=AROUND,
        qk_norm=True,
        fixed_keys={"logit_scale": 0.196116},
    ),
    "phi3": Family(
        allows=("n_rot",),
        mixers={"*": ("fused attention", "output of attention")},
        dense=("fused dense",),
        n_embd_of_heads=True,
    ),
    "gpt-oss": Family(
        needs=(*_ROUTED, "sliding_window"),
        mixers={"*": ("attention with biases", "output of attention", "sinks")},
        experts=("router", "experts", "biases of experts"),
        norms=BETWEEN,
        experts_type="mxfp4",
    ),
    "llama4": Family(needs=(*_SHARED, "n_expert_every")),
    "minimax-m2": Family(needs=(*_ROUTED, "n_rot"), mixers={"*": _ALL_HEADS}, gating=_SIGMOID),
    "minimax-m3": Family(
        needs=(*_SHARED, *_INDEXER, "n_rot", "head_dim"),
        allows=("n_layer_dense",),
        experts=(*_ROUTED_PARTS, "indexer of blocks"),
        qk_norm=True,
        fixed_keys={"attention.indexer.block_size": 128, "attention.indexer.local_blocks": 1},
        gating=_SIGMOID,
    ),
    "glm4moe": Family(
        needs=(*_SHARED, "n_rot", "head_dim"),
        allows=("n_layer_dense", "n_layer_nextn"),
        mixers={"*": _BIASED},
        norms=BETWEEN,
        gating=_SIGMOID,
    ),
    "deepseek2": Family(
        needs=(*_SHARED, *_LATENT),
        allows=("q_lora_rank", "n_layer_dense", "n_layer_nextn", "whole_kv"),
        mixers={"*": _MLA},
    ),
    "deepseek32": _DSA,
    "deepseek4": Family(
        needs=(*_SHARED, *_INDEXER, "head_dim", "n_rot", "q_lora_rank", "sliding_window", "n_group_out", "o_lora_rank"),
        allows=("n_layer_dense", "n_layer_hash"),
        mixers={
            "W": _DEEPSEEK4,
            "C": (*_DEEPSEEK4, "compressor", "indexer of compressed positions"),
            "H": (*_DEEPSEEK4, "heavy compressor"),
        },
        letters="WCH",
        hashed=("router", "experts", "experts of tokens", "shared expert"),
        norms=_MHC,
        outside=("input", "output_norm", "output", "last hyper-connection"),
        compression={"C": 4, "H": 128},
        fixed_keys=_MHC_KEYS
        | {
            "attention.compress_rope_freq_base": 160000.0,
            "expert_weights_scale": 1.5,
            "expert_weights_norm": True,
            "swiglu_clamp_exp": 10.0,
        },
        gating=_SQRT_SOFTPLUS,
    ),
    "glm-dsa": _DSA,
    "glm5-next": _DSA._replace(
        needs=(*_SHARED, *_INDEXER, "kv_lora_rank", "v_head_dim", "head_dim", "q_lora_rank", "ssm_conv", "ssm_state"),
        mixers={
            "*": (*_MLA, "pool of the indexer"),
            "M": ("delta attention", "low-rank gate of delta attention", "decay", "output of delta attention"),
        },
        letters="M*",
        norms=_MHC,
        fixed_keys=_MHC_KEYS | {"attention.indexer.kpool": 4, "attention.indexer.kpool_select_tail": True},
    ),
    "granitehybrid": Family(
        needs=_SSM,
        allows=("n_expert", "n_expert_used", "n_ff_shared_expert"),
        mixers={"*": ("attention", *_HEADS), "M": ("mamba 2",)},
        letters="M*",
    ),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_moe": _NEMOTRON._replace(
        needs=(*_SSM, *_SHARED, "head_dim"),
        allows=("n_embd_expert",),
        letters="M*E",
        experts=("router", "ungated experts", "latent experts", "selection bias", "ungated shared expert"),
        gating=_SIGMOID,
    ),
    "lfm2": _LFM2,
    "lfm2moe": _LFM2._replace(needs=("ssm_conv", *_ROUTED), allows=("n_layer_dense",), gating=_SIGMOID),
    "kimi-linear": Family(
        needs=(*_SHARED, *_LATENT, "ssm_conv", "ssm_state"),
        allows=("n_layer_dense",),
        mixers={"*": _MLA, "M": _KDA},
        letters="M*",
        gating=_SIGMOID,
    ),
    "kimi-k3": Family(
        needs=(*_SHARED, *_LATENT, "q_lora_rank", "n_embd_expert", "ssm_conv", "ssm_state"),
        allows=("n_layer_dense",),
        mixers={
            "*": (*_MLA, "gate of latent attention"),
            "M": ("delta attention", "gate of delta attention", "decay", "output of delta attention"),
        },
        letters="M*",
        experts=("router", "experts", "routed experts", "selection bias", "shared expert"),
        norms=(("attn_norm", "attn_res_score"), ("ffn_norm", "ffn_res_score"), ()),
        outside=("input", "output_norm", "output", "output_res_score"),
        fixed_keys={
            "attn_res.block_size": 12,
            "activation.situ_beta": 4.0,
            "activation.situ_linear_beta": 25.0,
        },
        gating=_SIGMOID,
    ),
}  # fmt: skip
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


class Hyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
