"""Files named as in public repos, with headers that have what tells a model from what lies beside it, and few tensors.

Architectures, types and numbers of layers are those that a public project recorded of published files, or what
llama.cpp's converter writes for such a file. Names: tests of that project (`RECORDED`, in a finder of models called
lllm2), https://github.com/eeshansrivastava89/minimal-ai/issues/2, https://github.com/gpustack/gpustack/issues/2365,
https://github.com/huggingface/huggingface.js/issues/2400, and scripts that name files which people run.
"""

from collections.abc import Iterator, Mapping

import msgspec

from ggbench.gguf_file.header import encode_header
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.gguf_file.quants import Role, known_quants, parse_shard_name


class NamedFile(msgspec.Struct, frozen=True):
    repo: str
    """Its repo on the test Hub, as the real one where that is known; without a slash only the name is tried."""
    path: str
    role: Role
    quant: str | None
    """Its `quant_label` by the name alone."""
    architecture: str = "llama"
    n_layer: int = 2
    n_nextn: int = 0
    first: int = 0
    """The first layer in the file."""
    named: Role | None = None
    """What the name says, if that is not what the file is."""
    type: str = "model"
    """`general.type`; empty in old files."""

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the bytes of each shard; the first of several has no tensors."""
        shard = parse_shard_name(self.path)
        if shard is None:
            yield self.path, self._content({}, self._tensors)
            return
        for number in range(shard.count):
            keys = {"split.no": number, "split.count": shard.count, "split.tensors.count": len(self._tensors)}
            tensors = self._tensors[number - 1 :: shard.count - 1] if number else []
            yield shard.sibling(number + 1), self._content(keys, tensors)

    @property
    def metadata(self) -> dict[str, object]:
        found: dict[str, object] = {"general.type": self.type} if self.type else {}
        if self.architecture:
            found["general.architecture"] = self.architecture
        sizes = {"block_count": self.n_layer, "embedding_length": 32, "attention.head_count": 1}
        sizes |= {"nextn_predict_layers": self.n_nextn} if self.n_nextn else {}
        found |= {f"{self.architecture}.{key}": value for key, value in sizes.items() if self.role != "imatrix"}
        file_type = known_quants().get(self.quant or "q8_0")
        return found if file_type is None else {**found, "general.file_type": file_type}

    @property
    def _tensors(self) -> list[TensorInfo]:
        if self.role == "vocabulary":
            return []
        names = [f"blk.{layer}.attn_norm.weight" for layer in range(self.first, self.n_layer)]
        return [TensorInfo(name, (32,), "f32", 128) for name in ("token_embd.weight", *names)]

    def _content(self, keys: Mapping[str, object], tensors: list[TensorInfo]) -> bytes:
        header = encode_header({**self.metadata, **keys}, tensors)
        return header.data + bytes(header.file_bytes - len(header.data))


_GEMMA, _QWEN = "unsloth/gemma-4-E2B-it-GGUF", "unsloth/Qwen3.8-27B-GGUF"
_NEXT, _SHARED = "unsloth/Qwen3.8-Flash-Next-GGUF", "apetersson/Qwen3.8-Flash-Next-GGUF"
_GEMMABLE, _ORNITH = "Mia-AiLab/Gemmable-4-12B-MTP-GGUF", "huihui-ai/Ornith-1.0-9B-abliterated-MTP-GGUF"
_HAUHAU = "HauhauCS/Qwen3.8-27B-Uncensored-HauhauCS-Aggressive-MTP-GGUF"
_NVFP4 = "esatapedico/Qwen3.8-27B-NVFP4-MTP-GGUF"
_AGGRESSIVE = "Qwen3.8-27B-Uncensored-HauhauCS-Aggressive"
_ASSISTANT = "gemma4-assistant"
_NEO = "LFM2.5-2.6B-Q3.8-TBrilliance-NEO"
NAMED_FILES = (
    NamedFile(_GEMMA, "gemma-4-E2B-it-Q8_0.gguf", "model", "q8_0", "gemma4"),
    NamedFile(_GEMMA, "gemma-4-E2B-it-UD-Q4_K_XL.gguf", "model", "ud-q4_k_xl", "gemma4"),
    NamedFile(_GEMMA, "MTP/gemma-4-E2B-it-Q8_0-MTP.gguf", "draft", "q8_0", _ASSISTANT),
    NamedFile(_GEMMA, "MTP/gemma-4-E2B-it-BF16-MTP.gguf", "draft", "bf16", _ASSISTANT),
    NamedFile(_GEMMA, "mmproj-BF16.gguf", "projector", "bf16", "clip"),
    NamedFile(_QWEN, "Qwen3.8-27B-UD-Q4_K_XL.gguf", "model", "ud-q4_k_xl", "qwen35"),
    NamedFile(_QWEN, "BF16/Qwen3.8-27B-BF16-00001-of-00002.gguf", "model", "bf16", "qwen35"),
    NamedFile(_QWEN, "imatrix_unsloth.gguf", "imatrix", None, "", type="imatrix"),
    NamedFile(_NEXT, "UD-IQ1_S/Qwen3.8-Flash-Next-UD-IQ1_S-00001-of-00003.gguf", "model", "ud-iq1_s", "qwen4exp", 48),
    NamedFile(_NEXT, "MTP/mtp-Qwen3.8-Flash-Next-Q4_K_M.gguf", "draft", "q4_k_m", "qwen4exp", 49, 1, 48),
    NamedFile(_SHARED, "Qwen3.8-Flash-Next-UD-IQ1_S.gguf", "model", "ud-iq1_s", "qwen4exp", 48),
    NamedFile(_SHARED, "shared/mtp-Qwen3.8-Flash-Next-shared-Q8_0.gguf", "draft", "q8_0", "qwen4exp", 49, 1, 48),
    NamedFile(_GEMMABLE, "gemmable-4-12b-Q4_K_M.gguf", "model", "q4_k_m", "gemma4", 48),
    NamedFile(_GEMMABLE, "gemmable-4-12b-Q4_K_M-mtp.gguf", "draft", "q4_k_m", _ASSISTANT, 4, 4, named="model"),
    NamedFile(_ORNITH, "ornith-9b-mtp-kl-Q8_0.gguf", "model", "q8_0", "qwen35", 33, 1),
    NamedFile(_ORNITH, "mtp-ornith-9b-mtp-kl-Q8_0.gguf", "draft", "q8_0", "qwen35", 33, 1, 32),
    NamedFile(_HAUHAU, f"{_AGGRESSIVE}-Q4_K_P.gguf", "model", "q4_k_p", "qwen35", 65, 1),
    NamedFile(_HAUHAU, f"{_AGGRESSIVE}-FastMTP-32K.gguf", "draft", None, "qwen35", 65, 1, 64, named="model"),
    NamedFile(_NVFP4, "Qwen3.8-27B-NVFP4-MTP-HIGH.gguf", "model", "nvfp4", "qwen35", 65, 1),
    NamedFile(_NVFP4, "mmproj-BF16.gguf", "projector", "bf16", "clip", type="mmproj"),
    NamedFile("mabry1985/Ornith", "Ornith-1.5-9B-MTP-IQ2_M.gguf", "model", "iq2_m", "qwen35", 33, 1),
    NamedFile("mabry1985/Ornith", "mmproj-Ornith-1.5-9B-BF16.gguf", "projector", "bf16", "clip"),
    NamedFile("tencent/Hy3", "Hy3-IQ1_M-mtp.gguf", "model", "iq1_m", "hunyuan-moe", 3, 1),
    NamedFile("DavidAU/LFM2.5", f"{_NEO}-IQ4_XS.gguf", "model", "iq4_xs", "lfm2"),
    NamedFile("DavidAU/LFM2.5", f"{_NEO}-MAX-Q6_K.gguf", "model", "q6_k", "lfm2"),
    NamedFile("AXCXEPT/EZO", "EZO-Common-9B-gemma-2-it.Q4_K_M.iMatrix.gguf", "model", "q4_k_m", "gemma2"),
    NamedFile("xtuner/llava-phi-3-mini-gguf", "llava-phi-3-mini-int4.gguf", "model", None, "phi3"),
    NamedFile("xtuner/llava-phi-3-mini-gguf", "llava-phi-3-mini-mmproj-f16.gguf", "projector", "f16", "clip"),
    NamedFile("TheBloke/Llama-2-7B-Chat-GGUF", "llama-2-7b-chat.Q2_K.gguf", "model", "q2_k", type=""),
    NamedFile("bartowski/Ornith", "Ornith-1.5-35B-A3B-Q4_K_M.gguf", "model", "q4_k_m", "qwen35moe"),
    NamedFile("bartowski/Ornith", "Ornith-1.5-35B-A3B-imatrix.gguf", "imatrix", None, "", type="imatrix"),
    NamedFile("webforge/models", "qwen3-4b-q4km.gguf", "model", "q4_k_m", "qwen3"),
    NamedFile("webforge/models", "ggml-vocab-qwen2.gguf", "vocabulary", None, "qwen2"),
    NamedFile("webforge/models", "Lora-bf16.gguf", "adapter", "bf16", "granite", type="adapter", named="model"),
    NamedFile("williamliao/eagle3", "gemma-4-26B-A4B-it-speculator.eagle3-Q4_K_M.gguf", "draft", "q4_k_m", "eagle3", 1),
    NamedFile("ds4", "DeepSeek-V4-Flash-IQ2XXS-w2Q2K-AProjQ8-chat-v2-imatrix.gguf", "model", "iq2_xxs", "deepseek4"),
    NamedFile("ubergarm", "Qwen3-235B-A22B-mix-IQ3_K-00001-of-00003.gguf", "model", "iq3_k", "qwen3moe"),
    NamedFile("heretic-org", "Qwen3-Coder-30B-A3B-Instruct-IQ4_KSS.gguf", "model", "iq4_kss", "qwen3moe"),
    NamedFile("mradermacher", "gemma-4-31B-it-assistant.Q4_K_M.gguf", "draft", "q4_k_m", _ASSISTANT, named="model"),
    NamedFile("mradermacher", "openPangu-Embedded-1B-V1.1.i1-IQ1_S.gguf", "model", "iq1_s", "pangu-embedded"),
)
