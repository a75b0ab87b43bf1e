"""The llama-server command of what was measured: a file as it is, and a twin's published model."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.host import default_threads
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.server_line import server_line
from tests.fakes.measured import start


@pytest.mark.parametrize(
    ("model", "source", "said"),
    [
        ("twin:qwen1.5-0.5b", "twin", "-hf Qwen/Qwen1.5-0.5B-Chat-GGUF:q8_0"),
        ("org/name-GGUF", "twin", "-hf org/name-GGUF:q8_0"),
        ("twin:mine", "twin", "-m mine-q8_0.gguf"),
        ("qwen", "file", "-m '/models/a b.gguf'"),
    ],
)
def test_it_loads_the_file_or_what_a_twin_stands_for(model: str, source: str, said: str) -> None:
    subject = Subject(model=model, quant="q8_0", source=source, file="/models/a b.gguf")
    run = Run(head=replace(start(), subject=subject), outcome=Outcome.COMPLETED)
    assert server_line(run, LlamaConfig(n_ctx=512, threads=default_threads())) == f"llama-server {said} -c 512 -np 1"


def test_a_twin_that_is_a_file_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "twins" / "tiny-q8_0.gguf").parent.mkdir()
    file.touch()
    subject = Subject(model="twins/tiny-q8_0.gguf", quant="q8_0", source="twin", file=str(file))
    run = Run(head=replace(start(), subject=subject), outcome=Outcome.COMPLETED)
    assert server_line(run, LlamaConfig()) == f"llama-server -m {file} -np 1"
