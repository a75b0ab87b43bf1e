"""A projector's file, with the keys that llama.cpp's clip.cpp reads first."""

from tests.gguf_file.conftest import BOOL, F32, STRING, U32, Encoder

MIB = 1 << 20


def a_projector(architecture: str = "clip", type_id: int = 1, n_rows: int = MIB // 4) -> bytes:
    keys = Encoder().key("general.architecture", STRING, architecture).key("clip.has_vision_encoder", BOOL, True)
    keys = keys.key("clip.projector_type", STRING, "mlp").key("clip.vision.block_count", U32, 2)
    keys = keys.key("clip.vision.attention.layer_norm_epsilon", F32, 1e-5)
    tensors = keys.tensor("mm.0.weight", (6, n_rows), type_id, 12 * n_rows).tensor(
        "mm.0.bias", (n_rows,), 0, 4 * n_rows
    )
    return tensors.file()
