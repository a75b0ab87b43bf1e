"""Twins: planned sizes against the published table, the cache, and whether llama.cpp decodes what was made."""

import ctypes
import math
import os
import threading
from pathlib import Path

import msgspec.structs
import numpy as np
import pytest

from ggbench.errors import UsageError
from ggbench.gguf_file import quantizer
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.quantizer import _dry_run
from ggbench.gguf_file.twin import cached_twin, plan_twin, scaled, twin_of
from ggbench.gguf_file.twin_writer import write_twin
from ggbench.models.catalog import load_catalog
from ggbench.models.published import load_published
from tests.conftest import TINY

QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")

DENSE = Hyperparameters("qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=2, n_ff=768, n_vocab=512, n_ctx_train=2048)
MOE = msgspec.structs.replace(
    DENSE, architecture="qwen2moe", n_expert=8, n_expert_used=2, n_ff_expert=256, n_ff_shared_expert=512
)
TIED = msgspec.structs.replace(DENSE, tied_embeddings=True, head_dim=64)


def qwen1_5(n_layer: int, n_embd: int, n_head: int, n_head_kv: int, n_ff: int, n_vocab: int) -> Hyperparameters:
    """Hyperparameters as in section 5.2.1 of the shared article; the head counts are those of the released models."""
    return Hyperparameters("qwen2", n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab, n_ctx_train=32768)


SIZES = {
    "0.5B": qwen1_5(24, 1024, 16, 16, 2816, 151936), "1.8B": qwen1_5(24, 2048, 16, 16, 5504, 151936),
    "4B": qwen1_5(40, 2560, 20, 20, 6912, 151936), "7B": qwen1_5(32, 4096, 32, 32, 11008, 151936),
    "14B": qwen1_5(40, 5120, 40, 40, 13696, 152064), "32B": qwen1_5(64, 5120, 40, 8, 27392, 152064),
}  # fmt: skip

TABLE_6_3_6 = {
    "0.5B": (8.50, 6.57, 5.85, 5.77, 5.18, 5.02, 4.44, 3.78),
    "1.8B": (8.50, 6.85, 5.97, 5.68, 5.28, 4.85, 4.40, 3.73),
    "4B": (8.50, 6.57, 5.74, 5.61, 4.96, 4.71, 4.09, 3.27),
    "7B": (8.50, 6.56, 5.72, 5.59, 4.93, 4.67, 4.05, 3.21),
    "14B": (8.50, 6.95, 5.95, 5.56, 5.19, 4.62, 4.19, 3.43),
    "32B": (None, None, 5.68, 5.53, 4.85, 4.55, 3.89, 3.01),
}
"""BPW that llama.cpp logged for the released files (shared article, table 6.3.6); two of the 32B did not fit."""

CHANGED_SINCE = {("1.8B", "q2_k"): 3.66, ("14B", "q2_k"): 3.34}
"""Rows there are not multiples of 256, and llama.cpp has since taken another type for those."""


@pytest.mark.parametrize("size", SIZES)
def test_bpw_of_every_quant_is_that_of_the_published_table(size: str) -> None:
    plans = plan_twin(SIZES[size], QUANTS, name=size)
    for quant, published in zip(QUANTS, TABLE_6_3_6[size], strict=True):
        bpw = plans[quant].bpw
        assert bpw is not None
        expected = CHANGED_SINCE.get((size, quant), published)
        if expected is not None:
            assert round(bpw, 2) == expected, quant


def test_bpw_of_every_quant_of_llama_3_1_8b_is_that_of_llama_cpps_table() -> None:
    """Its IQ4_XS and IQ4_NL were made without an importance matrix; published ones, and so twins, are with one."""
    published = {
        row.quant: row.figures["bpw"].value
        for row in load_published()
        if row.system == "llama.cpp" and row.model == "llama-3.1-8b" and row.quant and "bpw" in row.figures
    }
    assert len(published) == 24
    plans = plan_twin(load_catalog().model("llama-3.1-8b").hyper, list(published), name="llama-3.1-8b")
    planned = {quant: plan.bpw for quant, plan in plans.items()}
    for quant, bpw in {"iq4_xs": 4.4231, "iq4_nl": 4.6526}.items():
        assert planned.pop(quant) == pytest.approx(bpw, abs=6e-5) != published.pop(quant)
    assert planned == pytest.approx(published, abs=6e-5)


@pytest.mark.usefixtures("unmeasured")
def test_the_types_of_a_quant_are_asked_once_of_each_build(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def dry_run(path: bytes, quant: str, ftype: int) -> str:
        asked.append(quant)
        return _dry_run(path, quant, ftype)

    monkeypatch.setattr(quantizer, "_dry_run", dry_run)
    first = plan_twin(DENSE, ["q4_k_m"], name="tiny")
    assert plan_twin(DENSE, ["q4_k_m", "q8_0"], name="tiny")["q4_k_m"] == first["q4_k_m"]
    assert asked == ["q4_k_m", "q8_0"]
    monkeypatch.setattr(quantizer, "_build", lambda: b"of another llama.cpp")
    assert plan_twin(DENSE, ["q4_k_m"], name="tiny") == first
    assert asked == ["q4_k_m", "q8_0", "q4_k_m"]


def test_a_cached_twin_of_another_shape_or_cut_short_is_made_again(tmp_path: Path) -> None:
    path = cached_twin("tiny", DENSE, "q4_0", tmp_path)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    assert cached_twin("tiny", DENSE, "q4_0", tmp_path).stat().st_size == size
    wider = msgspec.structs.replace(DENSE, n_ff=1024)
    assert read_model_file(cached_twin("tiny", wider, "q4_0", tmp_path)).n_ff == (1024, 1024)
    narrow_rope = msgspec.structs.replace(DENSE, rope_freq_base=1e4)
    found = read_model_file(cached_twin("tiny", narrow_rope, "q4_0", tmp_path))
    assert found.metadata["qwen2.rope.freq_base"] == 1e4


def test_an_id_cannot_lead_out_of_the_cache(tmp_path: Path) -> None:
    path = cached_twin("../../x/y\n", DENSE, "q4_0", tmp_path / "cache")
    assert path.parent == tmp_path / "cache"
    assert path.name.isprintable()


def test_two_at_once_both_get_their_twin(tmp_path: Path) -> None:
    found: list[Path] = []
    both = threading.Barrier(2)

    def make() -> None:
        both.wait()
        found.append(cached_twin("tiny", DENSE, "q4_0", tmp_path))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]
    read_model_file(found[0])
    assert list(tmp_path.iterdir()) == [found[0]]


@pytest.mark.llama
@pytest.mark.parametrize(("hyper", "quant"), [(DENSE, "q4_k_m"), (TIED, "q2_k"), (MOE, "q4_k_m"), (MOE, "f16")])
def test_llama_cpp_decodes_a_twin(hyper: Hyperparameters, quant: str, tmp_path: Path) -> None:
    path = cached_twin("tiny", hyper, quant, tmp_path)
    first, second = _logits(path, [1, 2, 3]), _logits(path, [1, 2, 4])
    assert len(first) == hyper.n_vocab
    assert all(math.isfinite(value) for value in first)
    assert np.std(first) > 0.01
    assert not np.allclose(first, second)


@pytest.mark.llama
def test_the_twin_of_a_published_header_has_its_tensors_and_is_decoded(tmp_path: Path) -> None:
    header = Path(__file__).parents[1] / "data" / "headers" / "smollm2-135m-q4_1.gguf-header"
    model = read_model_file(header, allow_missing_data=True)
    write_twin(twin_of(model, "org/name", [0, 29]), tmp_path / "twin.gguf")
    twin = read_model_file(tmp_path / "twin.gguf")
    kept = [each for each in model.tensors if not each.name.startswith("blk.") or each.name.startswith("blk.0.")]
    found = {each.name: (each.shape, each.type_name) for each in twin.tensors}
    assert found.items() >= {each.name: (each.shape, each.type_name) for each in kept}.items()
    assert (twin.n_layer, twin.n_embd, twin.n_head_kv[0], twin.n_vocab) == (2, 576, 3, 49152)
    assert (twin.is_twin, model.is_twin, twin.metadata["ggbench.twin.source"]) == (True, False, "org/name")
    assert [key for key in twin.metadata if key.startswith("tokenizer.")] == ["tokenizer.ggml.model"]
    assert np.isfinite(_logits(tmp_path / "twin.gguf", [1, 2])).all()


def _logits(path: Path, tokens: list[int]) -> list[float]:
    import llama_cpp

    lines: list[bytes] = []
    keep = llama_cpp.llama_log_callback(lambda _level, text, _user_data: lines.append(text))
    before, user_data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(user_data))
    llama_cpp.llama_log_set(keep, None)
    try:
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = (
            False  # AMX kernels of some builds crash on any quantized model: llama.cpp issue 20824
        )
        model = llama_cpp.llama_model_load_from_file(os.fsencode(path), model_params)
        assert model, b"".join(lines)
        context_params = llama_cpp.llama_context_default_params()
        context_params.n_ctx = 256
        context = llama_cpp.llama_init_from_model(model, context_params)
        assert context, b"".join(lines)
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(ids, len(tokens))) == 0
        n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        logits = list(llama_cpp.llama_get_logits_ith(context, -1)[:n_vocab])
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)
        return logits
    finally:
        llama_cpp.llama_log_set(before, user_data)


def test_a_twin_replaces_no_model_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "tiny-q8_0.gguf"
    real = build_model(TINY, "tiny")
    path.write_bytes(encode_header(real.metadata, real.tensors).data + bytes(real.file_bytes))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is no twin"):
        cached_twin("tiny", TINY, "q8_0", tmp_path)
    assert path.read_bytes() == before


def test_a_published_size_leaves_the_float_tensors_as_they_are() -> None:
    """Norms are f32 whatever the mixture of types."""
    model = build_model(TINY, "tiny")
    larger = scaled(model, model.file_bytes + (1 << 20), "larger")
    grown = {old.type_name: new.n_bytes != old.n_bytes for old, new in zip(model.tensors, larger.tensors, strict=True)}
    assert grown.pop("f32") is False and all(grown.values())
    assert sum(each.n_bytes or 0 for each in larger.tensors) == pytest.approx(
        sum(each.n_bytes or 0 for each in model.tensors) + (1 << 20), abs=len(model.tensors)
    )
