"""Who lives, by locks that the kernel holds, and waits that say what they wait for and end."""

import subprocess
import sys
from pathlib import Path

import pytest

from ggbench import locks
from ggbench.locks import held, wait_for
from tests.fakes.clock import Clock

HOLDER = """
import sys
from pathlib import Path
from ggbench.locks import held
with held(Path(sys.argv[1])), held(Path(sys.argv[2])):
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_what_another_process_holds_is_held_until_it_is_killed(tmp_path: Path) -> None:
    places = tmp_path, tmp_path / "file"
    places[1].touch()
    words = [sys.executable, "-c", HOLDER, *map(str, places)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "holds\n"
        for place in places:
            with pytest.raises(BlockingIOError), held(place):
                pass
        holder.kill()
    for place in places:
        with held(place), pytest.raises(BlockingIOError), held(place):
            pass


@pytest.mark.parametrize(
    ("done_at_s", "moves_until_s", "is_done", "says"),
    [(0, 0, True, ""), (1, 0, True, ""), (5, 0, True, "waiting for it\n"), (99, 0, False, "waiting for it\n"),
     (99, 99, True, "waiting for it\n")],
)  # fmt: skip
def test_a_wait_says_what_it_waits_for_and_ends_once_nothing_moves(
    done_at_s: int,
    moves_until_s: int,
    is_done: bool,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    monkeypatch.setattr(locks, "time", clock)
    found = wait_for(
        lambda: clock.now_s >= done_at_s, "it", limit_s=10, progress=lambda: min(clock.now_s, moves_until_s)
    )
    assert (found, capsys.readouterr().err) == (is_done, says)
