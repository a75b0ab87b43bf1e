"""The answer of `ggbench doctor` as text and as JSON, and what it does not say about the person."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ggbench.decisions.doctor.checkup import Checkup, findings
from ggbench.decisions.doctor.show import DOCTOR, checkup_text, shown_checkup
from ggbench.machine.records import GpuProcess
from ggbench.show.anonymous import Paths
from tests.fakes.machines import DRIVER, HOME, SOUND, WITH_GPU

PERSONAL = replace(
    WITH_GPU,
    hub=replace(SOUND.hub, token_from=f"{HOME}/.cache/huggingface/token", endpoint="https://hub.example.com"),
    store=replace(SOUND.store, problem=f"cannot read {HOME}/secret/results.sqlite: malformed"),
    places=(replace(SOUND.places[0], path="/scratch/alice/ggbench"), *SOUND.places[1:]),
    driver=replace(DRIVER, gpus=(replace(DRIVER.gpus[0], processes=(GpuProcess(7, f"{HOME}/bin/train", 1 << 30),)),)),
)


def text_of(checkup: Checkup, paths: Paths) -> str:
    return checkup_text(checkup, findings(checkup, paths), paths)


def json_of(checkup: Checkup, paths: Paths) -> str:
    return DOCTOR.text(shown_checkup(checkup, paths), findings=findings(checkup, paths))


def test_text_of_a_machine_with_faults(golden: Callable[[str, str], None]) -> None:
    faulty = replace(
        WITH_GPU,
        cpu=replace(SOUND.cpu, governors=("powersave",), busy_share=0.04),
        store=replace(SOUND.store, version=9),
    )
    golden("doctor.txt", text_of(faulty, Paths(Path(HOME))) + "\n")


def test_nothing_personal_is_shown() -> None:
    paths = Paths(Path(HOME))
    for text in (text_of(PERSONAL, paths), json_of(PERSONAL, paths)):
        for private in ("alice", "scratch", "example.com", "GPU-1", "0000:01:00.0"):
            assert private not in text
    assert "~/.cache/huggingface/token" in text_of(PERSONAL, paths)
