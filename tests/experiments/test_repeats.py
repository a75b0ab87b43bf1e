"""Which runs repeat one another."""

import pytest
from msgspec.structs import replace

from ggbench.decisions.compare.repeats import repeats_among
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from tests.fakes.machines import ENVIRONMENT


def _run(**versions: str) -> Run:
    head = RunHead(
        kind="decode",
        subject=Subject(model="m", quant="q8_0", source="file", file="m.gguf"),
        setup=LlamaConfig(),
        settings=DecodeSettings(64),
        environment=replace(ENVIRONMENT, **versions),
    )
    return Run(head=head, outcome=Outcome.COMPLETED)


def test_runs_that_are_alike_are_one_group() -> None:
    assert [len(group) for group in repeats_among([_run(), _run(server="llama-server b1"), _run()])] == [2]


@pytest.mark.parametrize("version", ["llama_cpp", "llama_cpp_python", "transformers", "server", "system_info"])
def test_another_version_is_no_repeat(version: str) -> None:
    assert not repeats_among([_run(), _run(**{version: "another"})])
