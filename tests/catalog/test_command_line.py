"""The command line that reproduces a run."""

import shlex
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.command import command
from ggbench.models.command_line import named, reproduce, stated_bandwidth
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.stats.decode_timing import Bandwidth


@pytest.mark.parametrize(
    ("setup", "options"),
    [
        (LlamaConfig(), ""),
        (LlamaConfig(split_mode="row"), "--split-mode row"),
        (LlamaConfig(split_mode="none", main_gpu=1), "--main-gpu 1 --split-mode none"),
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
    """By its field's name, a switched-off one by its `--no-`, and words that a shell would change are quoted."""
    line = reproduce("decode", ("m", "q4_0"), setup, {"n": 100, "repeat": 2})
    assert line == " ".join(filter(None, ("ggbench decode m q4_0 -n 100 --repeat 2", options)))


SWITCHED: dict[str, Any] = {
    "n_ctx": 512, "n_batch": 256, "n_ubatch": 64, "type_k": "q8_0", "type_v": "q8_0", "flash_attn": "off",
    "n_gpu_layers": 1, "main_gpu": 0, "tensor_split": (1.0, 2.0), "rpc_servers": ("a:1",), "split_mode": "row",
    "n_cpu_moe": 1, "override_tensor": ("a=CPU",), "threads": 1, "threads_batch": 1, "n_seq_max": 2,
    "memory_limit_bytes": 1 << 30, "n_outputs_max": 8,
}  # fmt: skip
"""Of every field that is no flag, a value that is not its default."""


def test_every_field_of_a_setup_is_an_option_of_the_commands() -> None:
    """So that a reproduced line is understood; a new field without an option fails here."""
    options = {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
    for field in msgspec.structs.fields(LlamaConfig):
        value: Any = not field.default if isinstance(field.default, bool) else SWITCHED[field.name]
        switched = msgspec.structs.replace(LlamaConfig(), **{field.name: value})
        word = next(word for word in shlex.split(reproduce("decode", ("m",), switched, {})) if word.startswith("--"))
        assert word in options or field.name in ("n_seq_max", "n_outputs_max")  # which experiments set themselves


def test_a_file_is_named_by_its_whole_path() -> None:
    """So that the line means it from any folder; what is downloaded or made is named as it was."""
    local = Target("model.gguf", "q4_0", "file", Path("model.gguf"))
    assert named(local) == (str(Path.cwd() / "model.gguf"),)
    downloaded = Target("org/name", "q4_0", "hub", Path("/cache/blob"), selector="name-q4_0.gguf")
    assert named(downloaded) == ("org/name", "name-q4_0.gguf")
    assert named(resolve(parse_model("synth:qwen1.5-0.5b", "q4_0"))[0]) == ("synth:qwen1.5-0.5b", "q4_0")


def test_a_persons_own_bandwidth_is_stated_to_its_digits() -> None:
    assert stated_bandwidth(None) == {}
    assert stated_bandwidth(Bandwidth(1008.125e9, "given")) == {"bandwidth": "1008.125GB/s"}
