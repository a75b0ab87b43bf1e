"""The worker's wire format: one JSON object a line."""

import msgspec
import pytest

from ggbench.engines import protocol
from ggbench.engines.contract import Request, RowsFile, Score, Tokenize, Workload
from ggbench.engines.events import MemoryKind, Opened, Steps
from ggbench.engines.llama.config import LlamaConfig, LlamaRequest, LoadModel

SETUP = LlamaConfig(
    n_ctx=512, type_k="q8_0", tensor_split=(0.25, 0.75), split_mode="row", n_cpu_moe=3,
    override_tensor=(r"blk\.0\..*=CPU",), threads=2, threads_batch=4, mmap=False, mlock=True, kv_offload=False,
    swa_full=True, n_seq_max=8, memory_limit_bytes=3 << 30,
)  # fmt: skip
DECODER = protocol.request_decoder(LlamaRequest)
REQUESTS = (
    LoadModel("/models/x.gguf", SETUP, 1 << 30, dry=True), Tokenize("Grüße\n"),
    Score(((1, 2, 3), (4, 5, 6)), ((3,), (6,)), 1, 2, 2, RowsFile("/rows", "f32", 0, 1, 1, writes=True)),
)  # fmt: skip
MESSAGES = (
    protocol.Log(2, 'a "quoted" line, a tab\t, é'),
    protocol.Devices({"CPU": MemoryKind.HOST, "CUDA0": MemoryKind.GPU, "RPC[h:1]": MemoryKind.REMOTE}),
    Steps(26, [1 << 40, 2], [3, 4]),
    Opened(0.1, 512, 512, 128, None),
    protocol.Refused("context", out_of_memory=True, message="failed to allocate"),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
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
