"""Shapes from metadata, and the KV cache compared with what llama.cpp itself allocates for the same metadata."""

import atexit
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.architecture import RECURRENT, read_shape
from ggbench.gguf_file.header import assemble, read_model_file
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import ArrayLength, Header

if TYPE_CHECKING:
    from tests.gguf_file.conftest import Encoder

U32, I32, STRING = 4, 5, 8

Keys = dict[str, object]
"""Metadata of an architecture, without its name before each key."""

BASE: Keys = {
    "vocab_size": 128, "block_count": 6, "context_length": 4096, "embedding_length": 256,
    "feed_forward_length": 512, "attention.head_count": 8, "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-6,
}  # fmt: skip
EXPERTS: Keys = {
    "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64, "expert_shared_count": 1,
    "leading_dense_block_count": 1,
}  # fmt: skip
LATENT: Keys = EXPERTS | {
    "attention.q_lora_rank": 32, "attention.kv_lora_rank": 64, "expert_weights_scale": 1.0,
    "rope.dimension_count": 32,
}  # fmt: skip

LOGGED = """
import ctypes, json, pathlib, sys
import llama_cpp
@llama_cpp.llama_log_callback
def log(level, text, _):
    sys.stdout.write(text.decode(errors="replace"))
    sys.stdout.flush()
llama_cpp.llama_log_set(log, None)
llama_cpp.llama_backend_init()
n_seq_max = 1
def make_context(model):
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_ubatch, params.flash_attn_type, params.swa_full = 1024, 32, 1, True
    params.n_seq_max, params.kv_unified = n_seq_max, True
    return llama_cpp.llama_init_from_model(model, params)
"""

KV_CACHE_OF_METADATA = """
folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
base, llama = ctypes.CDLL(str(folder / "libggml-base.so")), ctypes.CDLL(str(folder / "libllama.so"))
base.gguf_init_empty.restype = llama.llama_model_init_from_user.restype = ctypes.c_void_p
gguf = ctypes.c_void_p(base.gguf_init_empty())
for key, value in json.loads(sys.argv[1]).items():
    name = key.encode()
    if isinstance(value, list):
        array = (ctypes.c_uint32 * len(value))(*value)
        base.gguf_set_arr_data(gguf, name, 4, array, ctypes.c_size_t(len(value)))
    elif isinstance(value, str):
        base.gguf_set_val_str(gguf, name, value.encode())
    elif isinstance(value, float):
        base.gguf_set_val_f32(gguf, name, ctypes.c_float(value))
    else:
        base.gguf_set_val_u32(gguf, name, ctypes.c_uint32(value))
fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda tensor, _: None)
llama.llama_model_init_from_user.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, llama_cpp.llama_model_params]
make_context(llama.llama_model_init_from_user(
    gguf, ctypes.cast(fill, ctypes.c_void_p), None, llama_cpp.llama_model_default_params()))
"""
"""llama.cpp can make a model from metadata alone, so its KV cache is seen with no file at all."""

COUNTS_OF_A_FILE = """
params = llama_cpp.llama_model_default_params()
params.no_alloc, params.load_mode = True, llama_cpp.LLAMA_LOAD_MODE_NONE
model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), params)
counts = ("n_params", "size", "n_layer", "n_embd", "n_head", "n_head_kv", "n_ctx_train")
print("COUNTS", json.dumps([getattr(llama_cpp, "llama_model_" + count)(model) for count in counts]), flush=True)
make_context(model)
"""


FORKING = """
import json, os, sys
import llama_cpp
for line in sys.stdin:
    script, argument, output = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(output, os.O_WRONLY), 1)
            sys.argv[1:] = [argument]
            exec(script, {})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    print(flush=True)
"""


@functools.cache
def llama_cpp_process() -> "subprocess.Popen[str]":
    """A process that has imported llama.cpp, which takes longer than what is asked of it, and forks for each script."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=os.environ | {"GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def run_llama_cpp(script: str, argument: str) -> str:
    """The log of a script in a process of its own: llama.cpp aborts on some graphs after it has logged the cache."""
    process = llama_cpp_process()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.NamedTemporaryFile() as output:
        print(json.dumps([LOGGED + script, argument, output.name]), file=process.stdin, flush=True)
        assert process.stdout.readline() == "\n"
        return output.read().decode(errors="replace")


CACHE_LINE = re.compile(r"llama_kv_cache: size = +[0-9.]+ MiB .*K \(f16\): +([0-9.]+) MiB, V \(f16\): +([0-9.]+) MiB")


def model_of(architecture: str, keys: dict[str, object], tensors: tuple[TensorInfo, ...] = ()) -> ModelFile:
    metadata = {"general.architecture": architecture, **{f"{architecture}.{key}": keys[key] for key in keys}}
    return assemble([Header(b"", 3, metadata, tensors, file_bytes=0, data_offset=0)], "x")


@pytest.mark.llama
@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("qwen2", {}),
        ("qwen2", {"attention.head_count_kv": 8}),
        ("qwen3", {"attention.key_length": 64, "attention.value_length": 64}),
        ("qwen2moe", EXPERTS | {"expert_shared_feed_forward_length": 64}),
        ("llama", {"nextn_predict_layers": 2}),
        ("deci", {"attention.head_count_kv": [2, 1, 2, 0, 4, 8], "attention.head_count": [8, 8, 8, 0, 8, 8]}),
        ("gemma3", {"attention.key_length": 64, "attention.value_length": 64, "attention.sliding_window": 256}),
        (
            "gemma3n",
            {
                "block_count": 26, "attention.key_length": 64, "attention.value_length": 64,
                "attention.sliding_window": 256,
            },
        ),
        (
            "deepseek2",
            LATENT
            | {
                "attention.head_count_kv": 1, "attention.key_length": 96, "attention.value_length": 64,
                "attention.key_length_mla": 64, "attention.value_length_mla": 64,
            },
        ),
        (
            "deepseek2",
            LATENT | {"attention.head_count_kv": 8, "attention.key_length": 64, "attention.value_length": 48},
        ),
    ],
)  # fmt: skip
def test_kv_bytes_are_those_that_llama_cpp_allocates(architecture: str, keys: dict[str, object]) -> None:
    keys = BASE | keys
    metadata: dict[str, object] = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    metadata |= {f"{architecture}.{key}": value for key, value in keys.items()}
    log = run_llama_cpp(KV_CACHE_OF_METADATA, json.dumps(metadata))
    caches = CACHE_LINE.findall(log)
    assert caches, log[-2000:]
    mib = sum(float(k) + float(v) for k, v in caches)
    assert model_of(architecture, keys).kv_bytes_per_token() * 1024 / 2**20 == pytest.approx(
        mib, abs=0.01 * len(caches)
    )


@pytest.mark.llama
def test_every_name_that_llama_cpp_calls_recurrent_hybrid_or_diffusion_is_known() -> None:
    import ctypes

    import llama_cpp

    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libllama.so"))
    name_of = library._Z13llm_arch_name8llm_arch
    name_of.restype = ctypes.c_char_p
    kinds = [
        library._Z21llm_arch_is_recurrentRK8llm_arch,
        library._Z18llm_arch_is_hybridRK8llm_arch,
        library._Z21llm_arch_is_diffusionRK8llm_arch,
    ]
    names = {}
    for number in range(300):
        name = name_of(number).decode()
        if name == "(unknown)":
            break
        names[name] = any(kind(ctypes.byref(ctypes.c_int(number))) & 0xFF for kind in kinds)
    assert len(names) > 100
    for name, special in names.items():
        if special and name not in RECURRENT:
            assert model_of(name, BASE).no_kv_reason.startswith(f"{name} "), name
    assert not any(model_of(name, BASE).no_kv_reason for name in ("llama", "qwen2", "qwen2moe", "gemma3", "gpt-oss"))


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("deepseek4", {}), ("qwen4exp", {}), ("granitehybrid", {"nextn_predict_layers": 1}), ("bert", {}),
        ("clip", {}), ("t5", {}), ("eagle3", {}), ("brand-new", {"ssm.state_size": 16}),
        ("brand-new", {"attention.indexer.top_k": 16}),
        ("brand-new", {"attention.compress_ratios": [1, 4, 4, 4, 4, 1]}),
        ("brand-new", {"attention.shared_kv_layers": 2}), ("brand-new", {"num_loops": 2}),
        ("flux", {"block_count": 0}),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused_by_name(architecture: str, keys: dict[str, object]) -> None:
    model = model_of(architecture, BASE | keys)
    with pytest.raises(Unsupported, match=architecture):
        model.kv_bytes_per_token()


@pytest.mark.parametrize(
    ("keys", "token_list", "expected"),
    [({"vocab_size": 100}, ArrayLength(200), 100), ({}, ArrayLength(200), 200), ({}, None, 300)],
)
def test_vocabulary_comes_from_the_best_source(keys: dict[str, object], token_list: object, expected: int) -> None:
    metadata = {f"llama.{key}": value for key, value in keys.items()}
    if token_list is not None:
        metadata["tokenizer.ggml.tokens"] = token_list
    embedding = TensorInfo("token_embd.weight", (64, 300), "f16", 64 * 300 * 2)
    assert read_shape("x", "llama", metadata, [embedding]).n_vocab == expected


@pytest.mark.parametrize(
    "keys",
    [
        {"block_count": "six"}, {"block_count": 1 << 30}, {"block_count": True}, {"block_count": -1},
        {"attention.head_count_kv": [1, 2, 3]}, {"attention.head_count_kv": ["1"] * 6},
        {"attention.head_count": ArrayLength(5000)}, {"embedding_length": 1.5},
        {"expert_count": 2, "expert_used_count": 3},
    ],
)  # fmt: skip
def test_a_shape_that_cannot_be_is_an_error(keys: dict[str, object]) -> None:
    with pytest.raises(BadFile, match="x"):
        model_of("llama", BASE | keys)


def moe(tied: bool) -> ModelFile:
    tensors = [
        TensorInfo("token_embd.weight", (64, 100), "f16", 12800),
        TensorInfo("blk.0.attn_q.weight", (64, 64), "f16", 8192),
        TensorInfo("blk.0.ffn_gate_inp.weight", (64, 4), "f32", 1024),
        TensorInfo("blk.0.ffn_up_exps.weight", (64, 32, 4), "f16", 16384),
        TensorInfo("blk.0.ffn_up_shexp.weight", (64, 32), "f16", 4096),
    ]
    if not tied:
        tensors.append(TensorInfo("output.weight", (64, 100), "f16", 12800))
    return model_of("qwen2moe", BASE | EXPERTS, tuple(tensors))


def test_a_token_reads_its_experts_and_the_output_but_not_the_embedding() -> None:
    assert moe(tied=False).active_weight_bytes == 8192 + 1024 + 16384 // 2 + 4096 + 12800
    assert moe(tied=True).active_weight_bytes == 12800 + 8192 + 1024 + 16384 // 2 + 4096


def attention_tensors(build: "Encoder", layer: int, n_embd: int, n_kv: int) -> None:
    prefix = f"blk.{layer}."
    build.tensor(prefix + "attn_norm.weight", (n_embd,), 0, 4 * n_embd)
    for name, rows in (("attn_q", n_embd), ("attn_k", n_kv), ("attn_v", n_kv)):
        build.tensor(f"{prefix}{name}.weight", (n_embd, rows), 1, 2 * n_embd * rows)
        build.tensor(f"{prefix}{name}.bias", (rows,), 0, 4 * rows)
    build.tensor(prefix + "attn_output.weight", (n_embd, n_embd), 1, 2 * n_embd * n_embd)
    build.tensor(prefix + "ffn_norm.weight", (n_embd,), 0, 4 * n_embd)


def write_sparse(path: Path, build: "Encoder", architecture: str) -> Path:
    """A file of 2 layers with a header of its own and no data, stretched to its full length."""
    n_layer, n_embd, n_ff, n_vocab, n_kv = 2, 256, 512, 1000, 64
    keys = {"block_count": n_layer, "context_length": 2048, "embedding_length": n_embd, "feed_forward_length": n_ff}
    keys |= {"attention.head_count": 8, "attention.head_count_kv": 2, "vocab_size": n_vocab}
    build.key("general.architecture", STRING, architecture).key("tokenizer.ggml.model", STRING, "none")
    for key, value in keys.items():
        build.key(f"{architecture}.{key}", U32, value)
    build.key(f"{architecture}.attention.layer_norm_rms_epsilon", 6, 1e-6)
    build.tensor("token_embd.weight", (n_embd, n_vocab), 8, n_embd * n_vocab * 34 // 32)
    build.tensor("output_norm.weight", (n_embd,), 0, 4 * n_embd)
    if architecture == "qwen2moe":
        build.tensor("output.weight", (n_embd, n_vocab), 14, n_embd * n_vocab * 210 // 256)
        for key, value in {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 256}.items():
            build.key(f"{architecture}.{key}", U32, value)
        build.key(f"{architecture}.expert_shared_feed_forward_length", U32, n_ff)
    for layer in range(n_layer):
        attention_tensors(build, layer, n_embd, n_kv)
        prefix = f"blk.{layer}."
        suffix = "_shexp" if architecture == "qwen2moe" else ""
        for name, shape in (("gate", (n_embd, n_ff)), ("up", (n_embd, n_ff)), ("down", (n_ff, n_embd))):
            build.tensor(f"{prefix}ffn_{name}{suffix}.weight", shape, 12, n_embd * n_ff * 144 // 256)
            if architecture == "qwen2moe":
                build.tensor(f"{prefix}ffn_{name}_exps.weight", (256, 256, 4), 12, 256 * 256 * 4 * 144 // 256)
        if architecture == "qwen2moe":
            build.tensor(prefix + "ffn_gate_inp.weight", (n_embd, 4), 0, 4 * n_embd * 4)
            build.tensor(prefix + "ffn_gate_inp_shexp.weight", (n_embd,), 0, 4 * n_embd)
    header = build.header()
    with path.open("wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // 32) * 32 + build.data_bytes)
    return path


@pytest.mark.llama
@pytest.mark.parametrize("architecture", ["qwen2", "qwen2moe"])
def test_counts_are_those_that_llama_cpp_makes_of_the_same_file(
    tmp_path: Path, encoder: "type[Encoder]", architecture: str
) -> None:
    path = write_sparse(tmp_path / "sparse.gguf", encoder(), architecture)
    log = run_llama_cpp(COUNTS_OF_A_FILE, str(path))
    found = re.search(r"^COUNTS (.*)$", log, re.MULTILINE)
    assert found is not None, log[-2000:]
    printed = re.search(r"file size += .*\(([0-9.]+) BPW\)", log)
    assert printed is not None

    model = read_model_file(path)
    assert json.loads(found[1]) == [
        model.n_params, model.weight_bytes, model.n_layer, model.n_embd, model.n_head[0], model.n_head_kv[0],
        model.n_ctx_train,
    ]  # fmt: skip
    assert model.bpw == pytest.approx(float(printed[1]), abs=0.005)
    caches = CACHE_LINE.findall(log)
    assert model.kv_bytes_per_token() * 1024 / 2**20 == pytest.approx(sum(map(float, caches[0])), abs=0.01)
