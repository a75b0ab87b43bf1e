"""The command line that reproduces a run."""

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.fields import reproduce


@pytest.mark.parametrize(
    ("setup", "options"),
    [
        (LlamaConfig(), ""),
        (LlamaConfig(split_mode="row"), "--split-mode row"),
        (LlamaConfig(split_mode="none", main_gpu=1), "--main-gpu 1 --split-mode none"),
        (LlamaConfig(devices=("CUDA0", "CUDA2")), "--devices CUDA0,CUDA2"),
        (LlamaConfig(cpu_moe=True), "--cpu-moe"),
        (LlamaConfig(n_cpu_moe=12), "--n-cpu-moe 12"),
        (LlamaConfig(override_tensor=("ffn_.*=CPU", "attn=CUDA0")), "--override-tensor 'ffn_.*=CPU,attn=CUDA0'"),
        (LlamaConfig(threads=4, threads_batch=8), "--threads 4 --threads-batch 8"),
        (LlamaConfig(mmap=False, mlock=True), "--no-mmap --mlock"),
        (LlamaConfig(kv_offload=False), "--no-kv-offload"),
        (LlamaConfig(swa_full=True), "--swa-full"),
        (LlamaConfig(n_gpu_layers=0, tensor_split=(0.5, 1.0)), "--n-gpu-layers 0 --tensor-split 0.5,1"),
        (LlamaConfig(rpc_servers=("box:50052", "10.0.0.7:1")), "--rpc box:50052,10.0.0.7:1"),
        (LlamaConfig(memory_limit_bytes=(1 << 30) + 1), "--memory-limit 1073741825B"),
    ],
)
def test_every_option_that_is_not_the_default_is_named(setup: LlamaConfig, options: str) -> None:
    """A switched-off field has `--no-`, and words that a shell would change are quoted."""
    line = reproduce("decode", ("m", "q4_0"), setup, {"n": 100, "repeat": 2})
    assert line == " ".join(filter(None, ("ggbench decode m q4_0 -n 100 --repeat 2", options)))
