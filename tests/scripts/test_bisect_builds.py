"""The bisection over builds: its steps with planted verdicts, and one with programs as slow as they are told."""

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
