"""A llama-server program that loads no model: `python -m tests.fakes.llama_server WAY FLAGS...`.

In the way `at most N` a larger context does not fit.

Its log is the real one of version 0.5.0-dev, cut to what ggbench reads; its answers are those of `AnyLength`.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.endpoint import Handler, Request, TestEndpoint
from tests.fakes.endpoint_faults import dies
from tests.fakes.endpoint_voices import AnyLength, Body

VERSION = "version: 0.5.0-dev (build 1, commit 0c1e570)\nbuilt with GNU 12.2.0 for Linux x86_64"
DEVICES = "Available devices:\n  Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2048 MiB free)"
HELP = "-c, --ctx-size N\n--port PORT\n-lm,   --load-mode MODE\n-lv, --verbosity N\n   - 4: trace (more info)\n"
WITH_RPC = f"{DEVICES}\n  RPC0: 10.0.0.7:50052 (8192 MiB, 8192 MiB free)"
_TEXTS = {
    "--version": VERSION, "--help": HELP,
    "--rpc*--list-devices": WITH_RPC, "--list-devices": DEVICES,
}  # fmt: skip
LOG = """\
0.00.005.402 I cmn  common_param: device_info:
0.00.005.415 I cmn  common_param:   - CPU     : AMD EPYC (24105 MiB, 24105 MiB free)
0.00.005.416 I cmn  common_param:   - Vulkan0 : llvmpipe (2048 MiB, 2048 MiB free)
0.00.005.559 I cmn  common_param: system_info: n_threads = 1 (n_threads_batch = 1) / 2 | CPU : SSE3 = 1 | AVX2 = 1 |\x20
0.00.073.639 I llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors (version GGUF V3)
0.00.329.139 I print_info: n_embd_k_gqa          = 192
0.00.329.153 I print_info: n_embd_v_gqa          = 192
0.00.714.010 I load_tensors:      Vulkan0 model buffer size =    92.10 MiB
0.00.715.433 I llama_context: n_ctx                 = 1280
0.00.715.459 I llama_context: n_batch               = 1280
0.00.715.472 I llama_context: n_ubatch              = 512
0.00.715.714 I llama_kv_cache:    Vulkan0 KV buffer size =    28.12 MiB
0.00.763.514 I resolve_fused_ops: Flash Attention enabled
0.00.765.704 I sched_reserve:        CPU compute buffer size =    14.76 MiB"""
NO_MODEL = """\
0.00.073.692 E gguf_init_from_reader: failed to read magic
0.00.073.887 E llama_model_load: error loading model: llama_model_loader: failed to load model from x.gguf
0.00.074.535 E srv  llama_server: exiting due to model loading error"""
BAD_VALUE = """\
error while handling argument "--top-k": stoi

usage:
--top-k N

to show complete usage, run with -h"""
NO_MEMORY = """\
0.01.000.000 E alloc_tensor_range: failed to allocate CPU buffer of size 47185920000
0.01.000.001 E srv  llama_server: exiting due to model loading error"""
NO_DRAFTS = """\
0.00.800.000 E srv  load_model: failed to initialize speculative decoding context: draft model vocab type must match"""
N_DRAFTED = 8
NO_LIBRARY = "llama-server: error while loading shared libraries: libllama.so.0: cannot open shared object file"


def install(folder: Path, way: str = "") -> Path:
    """Write the program into a folder; it behaves in this way. Its version and its help need no Python."""
    path = folder / "llama-server"
    root = Path(__file__).parents[2]
    refused = {'"--fast --version"': "error: invalid argument: --fast"} if way == "unknown flag" else {}
    said = refused | _TEXTS
    texts = "".join(f"*{flag}*) cat <<'END'\n{text}\nEND\nexit ;;\n" for flag, text in said.items())
    known = "" if way == "no library" else f"case $* in\n{texts}esac\n"
    path.write_text(
        f"#!/bin/sh\n{known}PYTHONPATH='{root}' exec '{sys.executable}' -SPm tests.fakes.llama_server '{way}' \"$@\"\n"
    )
    path.chmod(0o755)
    return path


def install_app(folder: Path, way: str = "", command: str = "serve") -> Path:
    """Write `llama` into a folder: one program for all, which serves as `llama serve`, or by another command.

    Source: app/llama.cpp of llama.cpp.
    """
    aside = folder / "app"
    aside.mkdir()
    path = folder / "llama"
    path.write_text(
        "#!/bin/sh\nfirst=$1\nshift\ncase $first in\n"
        f"{command}) exec '{install(aside, way)}' \"$@\" ;;\n"
        "--help) echo 'Usage: llama <command> [options]' ;;\n"
        f"--version) echo '{VERSION}' ;;\n"
        "*) echo \"error: unknown command '$first'\" >&2; exit 1 ;;\nesac\n"
    )
    path.chmod(0o755)
    return path


def _say(text: str, status: int | None = None) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    if status is not None:
        sys.exit(status)


class _Untimed(AnyLength):
    """Streams like a server of before 2024, whose chunks have no timings."""

    def _llama_server(self, body: Body) -> Iterator[bytes]:
        for line in super()._llama_server(body):
            if line.startswith(b"data: "):
                line = b"data: " + json.dumps(json.loads(line[6:]) | {"timings": {}}).encode()
            yield line


def main(way: str, *flags: str) -> None:
    if way == "no library":
        _say(NO_LIBRARY, 127)
    if record := os.environ.get("FAKE_LLAMA_SERVER_FLAGS"):
        Path(record).write_text(json.dumps(flags))
    n_ctx = int(flags[flags.index("-c") + 1])
    if way.startswith("at most ") and n_ctx > int(way.removeprefix("at most ")):
        way = "no memory"
    match way:
        case "no model":
            _say(NO_MODEL, 1)
        case "no memory":
            _say(NO_MEMORY, 1)
        case "unknown flag":
            _say(f"error: invalid argument: {'--fast' if '--fast' in flags else '-lm'}", 1)
        case "bad value":
            _say(BAD_VALUE, 1)
        case "aborts":
            _say("free(): invalid pointer")
            os.kill(os.getpid(), signal.SIGABRT)
        case "another cpu":
            os.kill(os.getpid(), signal.SIGILL)
        case "silent":
            time.sleep(3600)
        case "floods on":
            while True:
                _say("0.00.000.001 I a line\n" * 1000)
    spec_type = flags[flags.index("--spec-type") + 1] if "--spec-type" in flags else ""
    if spec_type and way == "older":
        _say("error: invalid argument: --spec-type", 1)
    if spec_type == "ngram-mod":
        _say('error while handling argument "--spec-type": unknown speculative type: ngram-mod', 1)
    key = os.environ["LLAMA_API_KEY"]

    def fault(handler: Handler, request: Request) -> bool:
        if request.path == "/health":
            handler.document(200, b'{"status":"ok"}', (("Connection", "close"),))
        elif request.headers.get("Authorization") != f"Bearer {key}":
            handler.document(401, b'{"error":{"message":"Invalid API Key"}}')
        elif way == "no room" and request.path == "/completion":
            handler.document(500, b'{"error":{"message":"decode() failed: std::bad_alloc"}}')
        elif way in ("dies", "hangs") and request.path == "/completion":
            dies(handler, request)
            handler.wfile.flush()
            if way == "dies":
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(3600)
        else:
            return False
        return True

    step_ns = int(flags[flags.index("--step-ns") + 1]) if "--step-ns" in flags else 10_000_000
    drafts = bool(spec_type)
    n_drafted = N_DRAFTED if drafts else 0
    if drafts:
        step_ns //= 2
    voice = (_Untimed if way == "untimed" else AnyLength)("llama_server", step_ns=step_ns, n_drafted=n_drafted)
    props = json.loads(voice.documents["GET", "/props"][1])
    props["default_generation_settings"]["n_ctx"] = n_ctx // int(flags[flags.index("-np") + 1])
    voice.documents["GET", "/props"] = 200, json.dumps(props).encode()
    endpoint = TestEndpoint(voice, fault)
    if way == "floods":
        _say("0.00.000.001 I a line\n" * 200_000)
    if way == "no drafts":
        _say(NO_DRAFTS)
    _say(f"{LOG}\n0.00.923.687 I srv  llama_server: listening on {endpoint.url}")
    time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
