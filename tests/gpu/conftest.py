"""What the tests on a real GPU share: twins, decodes with readings, and the pieces of the report that they leave.

scripts/gpu_check runs them and sets GGBENCH_GPU_PIECES, the file that the pieces go to, and GGBENCH_GPU_TWINS, a folder
that keeps the twins from one run to the next. Without an NVIDIA GPU or a CUDA build every one of them is skipped.
"""

import importlib.util
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine, launch
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.environment import environment
from ggbench.machine.gpus import visible_gpus
from ggbench.machine.host import default_threads
from ggbench.machine.readings import MachineReader
from ggbench.machine.records import Gpu
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.run import Run
from ggbench.runs.session import RunContext
from tests.fakes.recorded import decode_job, runs_of

Twin = Callable[[str, str], Target]
Measure = Callable[..., Run]
Note = Callable[..., None]

TIMEOUT_S = 600


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    gpus = visible_gpus()
    if not gpus:
        pytest.skip("NVML lists no NVIDIA GPU")
    package = importlib.util.find_spec("llama_cpp")
    if package is None or package.origin is None:
        pytest.skip("llama-cpp-python is not installed")
    if not any((Path(package.origin).parent / "lib").glob("libggml-cuda*")):
        pytest.skip("llama-cpp-python was built without CUDA")
    return gpus[0]


@pytest.fixture(scope="session")
def twin(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    folder = Path(os.environ.get("GGBENCH_GPU_TWINS") or tmp_path_factory.mktemp("twins"))
    folder.mkdir(parents=True, exist_ok=True)

    def make(model: str, quant: str) -> Target:
        return resolve(parse_model(str(cached_twin(model, load_catalog().model(model).hyper, quant, folder))))[0]

    return make


@pytest.fixture
def rig(gpu: Gpu) -> RunContext:
    def start(_setup: EngineConfig, cancel: threading.Event) -> LlamaEngine:
        return launch(cancel, timeout_s=TIMEOUT_S)

    return RunContext(
        launch=start, threads=default_threads(), describe_environment=environment,
        read_machine=MachineReader().read, cancel=threading.Event(),
    )  # fmt: skip


@pytest.fixture
def measure(rig: RunContext) -> Measure:
    def run(target: Target, n_gen: int, **setup: object) -> Run:
        job = decode_job(target, n_gen, LlamaConfig(**setup))  # type: ignore[arg-type]
        (run,) = runs_of(rig, job)
        return run

    return run


@pytest.fixture
def note() -> Note:
    def leave(title: str, **facts: object) -> None:
        file = os.environ.get("GGBENCH_GPU_PIECES")
        if file:
            with Path(file).open("a", encoding="utf-8") as pieces:
                pieces.write(json.dumps({"title": title, "facts": facts}, default=_plain) + "\n")

    return leave


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return str(value)
