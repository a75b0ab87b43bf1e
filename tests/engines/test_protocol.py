"""The worker's wire format: one JSON object a line."""

import msgspec
import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import (
    BatchAtDepth,
    BatchedDecode,
    Decode,
    Prefill,
    ProveContext,
    Request,
    RowsFile,
    Score,
    Tokenize,
    Workload,
)
from ggbench.engines.events import (
    ContextProven,
    Loaded,
    MemoryKind,
    Opened,
    Opening,
    PromptRead,
    Proving,
    Ready,
    Scored,
    Steps,
    Tokenized,
)
from ggbench.engines.llama.config import LlamaConfig, LlamaRequest, LoadModel, MakeContext

SETUP = LlamaConfig(
    n_ctx=512, type_k="q8_0", tensor_split=(0.25, 0.75), split_mode="row", n_cpu_moe=3,
    override_tensor=(r"blk\.0\..*=CPU",), threads=2, threads_batch=4, mmap=False, mlock=True, kv_offload=False,
    swa_full=True, n_seq_max=8, memory_limit_bytes=3 << 30,
)  # fmt: skip
WORKLOADS = (
    Prefill(25, repeat=3, warmup=1),
    Decode(25, 300),
    BatchedDecode(25, 300, 8),
    BatchAtDepth(4096, 8, 256),
    ProveContext(),
    Tokenize("Grüße\n"),
    Score(((1, 2, 3), (4, 5, 6)), ((3,), (6,)), 1, 2, 2, RowsFile("/rows", "f32", 0, 0, 1, 1, writes=True)),
)
DECODER = protocol.request_decoder(LlamaRequest)
REQUESTS = (LoadModel("/models/x.gguf", SETUP, 1 << 30, dry=True), MakeContext(SETUP), *WORKLOADS)
MESSAGES = (
    Ready(7, {"llama_cpp": "b1"}),
    protocol.Log(2, 'a "quoted" line, a tab\t, é'),
    protocol.Devices({"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "RPC[h:1]": MemoryKind.REMOTE}),
    Opening(0.5),
    Loaded(1.5, 1 << 30),
    Opened(0.1, 512, 512, 128, None),
    PromptRead(25, 1_000_000, 4),
    Tokenized([1, 2, 3], 32_000, 1),
    Scored([1.5, 0.25], [1.25, 0.5], [0.1, 0.0], [-0.5, 0.25], 1),
    Steps(26, [1 << 40, 2], [3, 4], "tokens"),
    Proving("fill", 0.25),
    ContextProven(full=True, left_bytes=0),
    protocol.Done(),
    protocol.Refused("context", out_of_memory=True, message="failed to allocate"),
)


@pytest.mark.parametrize(
    "request_", [*REQUESTS, protocol.Hold(), protocol.Release()], ids=lambda each: type(each).__name__
)
def test_a_request_arrives_as_it_was_sent(request_: Request | protocol.Control) -> None:
    line = protocol.encode(request_)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert DECODER.decode(line) == request_


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_arrives_as_it_was_sent(message: protocol.Message) -> None:
    line = protocol.encode(message)
    assert line.count(b"\n") == 1
    assert protocol.decode_message(line) == message


class Unknown(Workload, frozen=True, tag="unknown_to_this_one"):
    stage = "decode"


@pytest.mark.parametrize(
    "line",
    [
        protocol.encode(Unknown()), b'{"type":"decode","n_prompt":"many","n_gen":1}\n', b'{"type":"load_model"}\n',
        b'{"type":"elsewhere"}\n', b"not JSON\n",
    ],
    ids=["unknown workload", "wrong field", "missing field", "unknown request", "garbage"],
)  # fmt: skip
def test_what_is_no_request_is_a_decode_error(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        DECODER.decode(line)


@pytest.mark.parametrize("line", [b'{"type":"steps"}\n', b'{"type":"elsewhere"}\n', b"[]\n", b"\n"])
def test_what_is_no_message_is_a_decode_error(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        protocol.decode_message(line)
