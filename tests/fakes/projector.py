"""A projector's file, with the keys that llama.cpp's clip.cpp reads first."""

from collections.abc import Mapping

from tests.gguf_file.conftest import BOOL, F32, STRING, U32, Encoder

N_EMBD = 1024
"""Width of the embeddings that it gives out, as wide as Qwen1.5 0.5B's."""


def a_projector(
    architecture: str = "clip", type_id: int = 1, n_embd: int = N_EMBD, vision: Mapping[str, int | str] | None = None
) -> bytes:
    """Return a projector of 4 MiB for models of this width; `vision` are keys of the image encoder."""
    n_in = ((4 << 20) - 4 * n_embd) // (2 * n_embd)
    keys = Encoder().key("general.architecture", STRING, architecture).key("clip.has_vision_encoder", BOOL, True)
    keys = keys.key("clip.projector_type", STRING, "mlp").key("clip.vision.block_count", U32, 2)
    keys = keys.key("clip.vision.attention.layer_norm_epsilon", F32, 1e-5)
    for name, value in (vision or {}).items():
        keys = keys.key(f"clip.vision.{name}", STRING if isinstance(value, str) else U32, value)
    tensors = keys.tensor("mm.0.weight", (n_in, n_embd), type_id, 2 * n_in * n_embd)
    return tensors.tensor("mm.0.bias", (n_embd,), 0, 4 * n_embd).file()
