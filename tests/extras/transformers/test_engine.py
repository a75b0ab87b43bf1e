"""Transformers' engine over recorded messages of a worker, without torch: what it yields, and when it starts again."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Decode, Source
from ggbench.engines.endings import Completed, Crashed, Failed, OutOfMemory
from ggbench.engines.events import Loaded, Opened, Steps
from ggbench.errors import EngineFailed
from ggbench.extras.transformers.config import LoadCheckpoint, MakeCache, TransformersConfig
from ggbench.extras.transformers.engine import TransformersEngine, check_packages
from ggbench.extras.transformers.model import is_memory_error, one_line
from tests.fakes.engine import Bench, Script

SETUP = TransformersConfig(n_ctx=512, threads=1)
FOLDER = Source(Path("/checkpoints/x"))
HEALTHY: Script = {
    LoadCheckpoint: (Loaded(0.1), Completed()),
    MakeCache: (Opened(0.1, 512), Completed()),
    Decode: (Steps(26, [1], [1]), protocol.Log(3, "a warning"), Completed()),
}


def _bench(*scripts: Script, check: Callable[[str], None] = lambda method: None) -> Bench[TransformersEngine]:
    return Bench(partial(TransformersEngine, check=check), FOLDER, SETUP, *(scripts or (HEALTHY,)))


def test_a_model_and_its_cache_are_opened_and_no_log_leaves() -> None:
    bench = _bench()
    assert bench.open() == [Loaded(0.1), Opened(0.1, 512), Completed()]
    assert list(bench.engine.run(Decode(25, 1))) == [Steps(26, [1], [1]), Completed()]


@pytest.mark.parametrize("field", [{"n_ctx": 1024}, {"n_seq_max": 4}])
def test_another_cache_keeps_the_loaded_model(field: dict[str, int]) -> None:
    bench = _bench()
    bench.open()
    bench.open(replace(SETUP, **field))
    assert bench.asked == [[LoadCheckpoint, MakeCache, MakeCache]]


@pytest.mark.parametrize(
    "field", [{"method": "f32"}, {"memory_limit_bytes": 1 << 30}, {"device": "cpu"}, {"attention": "eager"}]
)
def test_another_load_takes_a_new_worker(field: dict[str, object]) -> None:
    bench = _bench()
    bench.open()
    bench.open(replace(SETUP, **field))
    assert bench.asked == [[LoadCheckpoint, MakeCache]] * 2
    assert bench.workers[0].closed


def test_the_next_open_after_a_crash_starts_again() -> None:
    bench = _bench({**HEALTHY, Decode: (Crashed("it died"),)}, HEALTHY)
    bench.open()
    (ending,) = bench.engine.run(Decode(25, 1))
    assert isinstance(ending, Crashed)
    assert bench.open()[-1] == Completed()
    assert len(bench.workers) == 2


def test_a_refused_cache_keeps_the_worker() -> None:
    refusal = OutOfMemory("context", "no room")
    bench = _bench()
    bench.open()
    bench.workers[0].script = {**HEALTHY, MakeCache: (refusal,)}
    assert bench.open(replace(SETUP, n_ctx=1 << 20)) == [refusal]
    bench.workers[0].script = HEALTHY
    assert bench.open()[-1] == Completed()
    assert len(bench.workers) == 1


def test_missing_packages_end_the_open_with_what_to_install() -> None:
    def missing(method: str) -> None:
        raise EngineFailed(f"{method}: none", "install them")

    bench = _bench(check=missing)
    ending = bench.open()[-1]
    assert isinstance(ending, Failed) and isinstance(ending.error, EngineFailed)
    assert not bench.workers


@pytest.mark.parametrize(
    ("method", "versions", "fault", "extra"),
    [
        ("bf16", {}, "torch, transformers, accelerate, safetensors", "ggbench[transformers]"),
        ("bf16", {"torch": "2.1.0"}, "torch 2.1.0 (2.6 or later)", "ggbench[transformers]"),
        ("bf16", {"transformers": "garbled"}, "transformers garbled (5.0 or later)", "ggbench[transformers]"),
        ("nf4", {"bitsandbytes": ""}, "bitsandbytes", "ggbench[transformers,bitsandbytes]"),
        ("awq-int4", {"gptqmodel": ""}, "gptqmodel", "ggbench[transformers,gptqmodel]"),
    ],
)
def test_packages_that_are_missing_or_too_old_are_named(
    method: str, versions: dict[str, str], fault: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = dict.fromkeys(("torch", "transformers", "accelerate", "safetensors"), "99.0")
    found = good | versions if versions else {}

    def version(name: str) -> str:
        if not found.get(name):
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(EngineFailed) as error:
        check_packages(method)
    assert error.value.message.endswith(f"are missing or too old: {fault}")
    assert extra in error.value.hint
    found |= good | {"bitsandbytes": "0.50.2", "gptqmodel": "7.0"}
    check_packages(method)


def test_memory_errors_are_recognized() -> None:
    cpu = RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 32000256 bytes. Error code 12 (Cannot allocate memory)"
    )
    cuda = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB")
    unclear = [
        RuntimeError("could not create a primitive"),
        RuntimeError("We encountered some issues during automatic conversion of the weights. For details look at"),
    ]
    assert is_memory_error(cpu, is_limited=False) and is_memory_error(cuda, is_limited=False)
    assert is_memory_error(MemoryError(), is_limited=False)
    for error in unclear:
        assert is_memory_error(error, is_limited=True) and not is_memory_error(error, is_limited=False)
    assert not is_memory_error(ValueError("unknown model type"), is_limited=True)
    assert one_line(cpu).startswith("err == 0. DefaultCPUAllocator: can't allocate memory")
    assert one_line(ValueError("\n  first \x1b[31mline\nsecond")) == "first [31mline"


def test_nothing_of_torch_is_imported_by_a_command() -> None:
    code = (
        "import sys, ggbench.cli.main, ggbench.extras.transformers.engine\n"
        "print(sorted({'torch', 'transformers', 'accelerate', 'safetensors'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
