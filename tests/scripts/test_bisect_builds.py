"""The bisection over builds: its steps with planted verdicts, and one with programs as slow as they are told."""

import json
import subprocess
import sys

import pytest

from scripts import bisect_builds
from scripts.bisect_builds import Step


@pytest.mark.parametrize(
    ("verdicts", "code", "tried", "said"),
    [
        ("abCDEFGH", 0, "HDbC", "the first slower build is 3, C; the one before it is b"),
        ("abcdefgh", 0, "h", "no build is slower than the first"),
        ("aBCDEFGH", 0, "HDB", "the first slower build is 2, B; the one before it is a"),
        ("abc?EFGH", 1, "H?", "build 4 of 8, ?: undecided: 1.000 (0.900 to 1.100) of the first's speed"),
        ("abc!EFGH", 6, "H!", "build 4 of 8, !: does not run: 1.000 (0.900 to 1.100) of the first's speed"),
    ],
)
def test_it_ends_in_the_first_slower_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdicts: str, code: int, tried: str, said: str
) -> None:
    """A build in capitals is slower."""
    asked = []

    def compare(_: object, first: str, other: str) -> Step:
        asked.append(other)
        assert first == "a"
        if other in "?!":
            return Step("undecided" if other == "?" else "does not run", 1.0, 0.9, 1.1)
        return Step("slower" if other.isupper() else "as fast", 1.0, 0.9, 1.1)

    monkeypatch.setattr(bisect_builds, "compare", compare)
    monkeypatch.setattr(sys, "argv", ["bisect_builds", "model", *verdicts])
    assert bisect_builds.main() == code
    assert "".join(asked) == tried
    assert capsys.readouterr().out.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("intervals", "verdict", "rounds"),
    [
        ([None, (0.5, 0.8)], "slower", ["1", "2"]), ([(0.96, 1.1)], "as fast", ["1"]),
        ([(0.9, 1.1)] * 3, "undecided", ["1", "2", "4"]),
    ],
)  # fmt: skip
def test_the_rounds_double_until_a_step_is_decided(
    monkeypatch: pytest.MonkeyPatch,
    intervals: list[tuple[float, float] | None],
    verdict: str,
    rounds: list[str],
) -> None:
    """One round has no interval."""
    asked, left = [], iter(intervals)

    def bench(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[command.index("-r") + 1])
        metric = {"metric": "tok_s", "versus": [{"ratio": 0.9, "ratio_ci95": next(left)}]}
        return subprocess.CompletedProcess(command, 0, json.dumps({"metrics": [metric]}))

    monkeypatch.setattr("subprocess.run", bench)
    monkeypatch.setattr(sys, "argv", ["bisect_builds", "model", "a", "b", "--rounds", "1", "--most-rounds", "4"])
    assert bisect_builds.main() == (1 if verdict == "undecided" else 0)
    assert asked == rounds
