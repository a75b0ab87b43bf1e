"""Names of quants from metadata and file names, against llama.cpp's own enum."""

import re

import pytest

from ggbench.errors import UnknownName, Unsupported
from ggbench.gguf_file.quants import (
    canonical_quant,
    ftype_by_name,
    known_quants,
    plain_quant,
    quant_by_ftype,
    quant_label,
    role,
)


def test_every_file_type_of_llama_cpp_has_a_name() -> None:
    from llama_cpp import llama_cpp

    theirs = {
        match[1].lower().replace("mxfp4_moe", "mxfp4"): number
        for constant, number in vars(llama_cpp).items()
        if (match := re.fullmatch("LLAMA_FTYPE_(?:ALL|MOSTLY)_(.+)", constant))
    }
    assert {name: ftype_by_name(name) for name in known_quants()} == theirs
    assert {name: quant_by_ftype(number) for name, number in theirs.items()} == {name: name for name in theirs}


@pytest.mark.llama
def test_names_agree_with_llama_ftype_name() -> None:
    from llama_cpp import llama_cpp

    sizes = {"Small": "_s", "Medium": "_m", "Large": "_l"}
    for name in known_quants():
        printed = llama_cpp.llama_ftype_name(ftype_by_name(name)).decode()
        family, _, rest = printed.removeprefix("all ").removesuffix(" MoE").partition(" - ")
        expected = {"q2_k_m": "q2_k", "iq3_s mix": "iq3_m"}
        derived = family.lower() + sizes.get(rest, "")
        assert expected.get(derived, derived) == name, printed


@pytest.mark.parametrize(
    ("file_name", "quant"),
    [
        ("qwen1.5-7b-chat-q4_k_m.gguf", "q4_k_m"), ("qwen1_5-7b-chat-q4_k_m.gguf", "q4_k_m"),
        ("Qwen2.5-7B-Instruct-Q4_K_M-00001-of-00002.gguf", "q4_k_m"), ("model.Q4_K_M.gguf", "q4_k_m"),
        ("model.i1-IQ3_XXS.gguf", "iq3_xxs"), ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "ud-q4_k_xl"),
        ("Qwen3-30B-A3B-Q4_K_XL.gguf", "q4_k_xl"), ("gemma-3-4b-it-BF16.gguf", "bf16"),
        ("Meta-Llama-3.1-8B-Instruct-Q6_K_L.gguf", "q6_k_l"), ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("gemma-3-27b-it-q4_0_s.gguf", "q4_0_s"), ("UD-Q4_K_XL/DeepSeek-R1-00001-of-00009.gguf", "ud-q4_k_xl"),
        ("ggml-Q4_K.gguf", "q4_k_m"), ("qwen3-4b-q4km.gguf", "q4_k_m"), ("m-IQ4_KS.gguf", "iq4_ks"),
        ("m-Q4_K_P.gguf", "q4_k_p"), ("/home/q8_0/models/m.gguf", None), ("Qwen3-Q3.8-IVORY.gguf", None),
        ("xq4_k_m.gguf", None), ("model-q4_k_mx.gguf", None), ("model-Q4_0_4_4.gguf", None), ("", None),
    ],
)  # fmt: skip
def test_quant_is_read_from_a_file_name(file_name: str, quant: str | None) -> None:
    assert quant_label(file_name) == quant


@pytest.mark.parametrize(
    ("file_name", "file_type", "label"),
    [
        ("model-q8_0.gguf", 15, "q4_k_m"), ("model-UD-Q4_K_XL.gguf", 15, "ud-q4_k_xl"),
        ("model-UD-Q4_K_M.gguf", 15, "ud-q4_k_m"), ("model-Q6_K_L.gguf", 18, "q6_k_l"),
        ("model-Q4_K.gguf", 15, "q4_k_m"), ("model.gguf", 7, "q8_0"), ("model-q5_0.gguf", None, "q5_0"),
        ("model-q5_0.gguf", 999, "q5_0"), ("model-q5_0.gguf", "seven", "q5_0"), ("model.gguf", None, None),
        ("model-IQ4_KS.gguf", 137, "iq4_ks"), ("model-IQ4_KS.gguf", 15, "q4_k_m"),
    ],
)  # fmt: skip
def test_label_prefers_the_header_but_not_to_a_finer_name(file_name: str, file_type: object, label: str | None) -> None:
    assert quant_label(file_name, {"general.file_type": file_type}) == label


@pytest.mark.parametrize(
    ("file_name", "sidecar"),
    [
        ("mmproj-F16.gguf", True), ("gemma-3-4b-it-mmproj-bf16.gguf", True), ("Qwen3-8B-imatrix.gguf", True),
        ("imatrix_unsloth.gguf_file", True), ("mtp-Qwen3.5-27B.gguf", True), ("drafts/eagle3-llama-8b.gguf", True),
        ("Qwen3.5-27B-MTP-Q4_K_M.gguf", False), ("improjected-7b.gguf", False),
    ],
)  # fmt: skip
def test_sidecars_are_told_from_models(file_name: str, sidecar: bool) -> None:
    assert (role(file_name) != "model") is sidecar


@pytest.mark.parametrize(
    ("mixture", "plain"),
    [
        ("ud-q4_k_xl", "q4_k_m"), ("ud-q3_k_xl", "q3_k_m"), ("ud-q2_k_xl", "q2_k"), ("ud-q6_k_xl", "q6_k"),
        ("ud-q8_k_xl", "q8_0"), ("ud-iq2_m", "iq2_m"), ("q5_k_m", "q5_k_m"),
    ],
)  # fmt: skip
def test_a_mixture_is_named_after_a_quant_that_llama_cpp_has(mixture: str, plain: str) -> None:
    assert plain_quant(mixture) == plain
    assert plain in known_quants()


@pytest.mark.parametrize(
    ("typed", "quant"),
    [
        ("Q4_K", "q4_k_m"), ("q4km", "q4_k_m"), ("Q80", "q8_0"), ("UD_Q4_K_XL", "ud-q4_k_xl"), ("fp16", "f16"),
        ("iq4ks", "iq4_ks"), ("ud-iq2xxs", "ud-iq2_xxs"), ("MXFP4_MOE", "mxfp4"), ("other", "other"),
    ],
)  # fmt: skip
def test_a_quant_has_one_spelling(typed: str, quant: str) -> None:
    """`Q4_K` is the medium mix, as llama-quantize takes it."""
    assert canonical_quant(typed) == quant


def test_a_quant_that_is_none_names_the_nearest() -> None:
    with pytest.raises(Unsupported, match=r"iq5_k is a type that only ik_llama\.cpp has"):
        ftype_by_name("IQ5_K")
    with pytest.raises(UnknownName) as caught:
        ftype_by_name("q4_k_n")
    assert "q4_k_m" in caught.value.hint
