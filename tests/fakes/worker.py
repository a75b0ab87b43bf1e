"""Speaks the worker's protocol and misbehaves on cue; the cue is its second to last argument, the pipe its last."""

import os
import signal
import sys
import time

from ggbench.engines import protocol
from ggbench.engines.contract import Decode
from ggbench.engines.events import PromptRead, Ready, Steps
from ggbench.engines.llama.config import LlamaRequest


def main() -> None:
    cue, event_fd = sys.argv[1], int(sys.argv[2])

    def send(message: protocol.Message) -> None:
        os.write(event_fd, protocol.encode(message))

    decoder = protocol.request_decoder(LlamaRequest)
    send(Ready(os.getpid(), {"llama_cpp": "fake"}))
    for line in sys.stdin.buffer:
        request = decoder.decode(line)
        match cue:
            case "abort":
                print("GGML_ASSERT(something) failed", file=sys.stderr, flush=True)
                os.abort()
            case "abort_out_of_memory":
                send(protocol.Log(4, "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"))
                os.abort()
            case "exit":
                sys.exit(7)
            case "hang":
                signal.pause()
            case "garbage":
                os.write(event_fd, b'{"type": "steps", "step_ns": "many"}\n')
                signal.pause()
            case "not_utf8":
                os.write(event_fd, b'{"type":"log","level":2,"text":"\xff"}\n')
                signal.pause()
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "endless_line":
                while True:
                    os.write(event_fd, b"x" * (1 << 16))
            case "close_pipe":
                os.close(event_fd)
                while True:
                    time.sleep(60)
            case "log":
                while True:
                    send(protocol.Log(2, "still here"))
                    time.sleep(0.02)
            case "flood":
                for number in range(50_000):
                    send(protocol.Log(2, f"line {number}"))
            case "refuse":
                send(protocol.Refused("load", out_of_memory=False, message="unknown architecture"))
                continue
            case "refuse_memory":
                send(protocol.Refused("context", out_of_memory=True, message="failed to allocate"))
                continue
        if isinstance(request, Decode):
            send(PromptRead(request.n_prompt, 5_000_000))
            send(Steps(request.n_prompt + 1, [1_000_000] * request.n_gen, [1000] * request.n_gen))
        send(protocol.Done())


main()
