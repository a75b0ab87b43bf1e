"""Folders of twins whose process was killed, and those of processes that live."""

import subprocess
import sys
from pathlib import Path

from ggbench.gguf_file.twin import remove_left_twins

_HOLDS = """
import sys, time
from pathlib import Path
from ggbench.gguf_file.twin import twin_folder
with twin_folder(Path(sys.argv[1])) as folder:
    (folder / "twin-0.gguf").write_bytes(bytes(1000))
    (folder / "link.gguf").symlink_to("twin-0.gguf")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_the_twins_of_a_killed_process_are_removed_and_no_sooner(tmp_path: Path) -> None:
    """As long as it lives they stay."""
    with subprocess.Popen([sys.executable, "-c", _HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        remove_left_twins(tmp_path)
        assert (folder / "twin-0.gguf").stat().st_size == 1000
        process.kill()
    assert (folder / "twin-0.gguf").exists()
    remove_left_twins(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_ggbench_did_not_make_stays(tmp_path: Path) -> None:
    own, other = tmp_path / "cache", tmp_path / "other"
    for folder in (own / "twins-mine", own / "twins-kept" / "inside", other):
        folder.mkdir(parents=True)
    (own / "twins-mine" / "model.gguf").touch()
    for folder in (own / "twins-kept", other):
        (folder / "in-use.lock").touch()
    (own / "twins-link").symlink_to(other)
    remove_left_twins(own)
    assert (own / "twins-mine" / "model.gguf").exists()
    assert (own / "twins-kept" / "inside").exists()
    assert (other / "in-use.lock").exists()
