"""Profiles from elsewhere are read strictly: whatever is wrong with one is said in a line, and nothing else happens."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggbench.errors import BadFile, UnknownName
from ggbench.machine import profile as module
from ggbench.machine.profile import find_profile, read_profile
from tests.fakes.profiles import planted_profile

WHOLE = planted_profile().encode()


def changed(**values: object) -> bytes:
    return json.dumps(json.loads(WHOLE) | values).encode()


def host(**values: object) -> bytes:
    return changed(host=json.loads(WHOLE)["host"] | values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[: len(WHOLE) // 2], "p.json is not a device profile, or it is cut off: it is not JSON"),
        (b"[" * 100_000, "cut off"),
        (b"\xff\x00", "cut off"),
        (b"[1]", "p.json is not a device profile"),
        (changed(schema="ggbench.plan/1"), "p.json is not a device profile: its schema is 'ggbench.plan/1'"),
        (changed(schema="ggbench.profile/2"), "p.json was written by a newer ggbench (ggbench.profile/2)"),
        (changed(schema=["ggbench.profile/1"]), "p.json is not a device profile"),
        (changed(n_cores=0), "p.json is not a whole device profile: Expected `int` >= 1 - at `$.n_cores`"),
        (changed(ggbench="\x1b[2J"), "at `$.ggbench`"),
        (changed(path="/home/someone"), "unknown field `path`"),
        (host(memory_bytes=-1), "at `$.host.memory_bytes`"),
        (host(bandwidth_bytes_per_s=1e9), "p.json is impossible: Planted CPU reads f16 weights at 17.9 GB/s"),
        (host(rates={}), "p.json has no timings"),
        (host(rates={"2": json.loads(WHOLE)["host"]["rates"]["2"]}), "Planted CPU has no single token"),
        (host(rates={"1": {}}), "missing required field"),
    ],
)
def test_a_bad_profile_is_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_profile(content, "p.json")
    assert message in caught.value.message
    assert "\n" not in caught.value.message and caught.value.hint


@given(st.data())
def test_a_damaged_profile_is_read_or_refused(data: st.DataObject) -> None:
    """Any value of any field may be replaced by anything; what is read can be planned for."""
    document = json.loads(WHOLE)
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    place[key] = data.draw(scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=3), scalars))
    try:
        profile = read_profile(json.dumps(document).encode(), "p.json")
    except BadFile as error:
        assert "\n" not in error.message
    else:
        assert profile.machine().host is not None
        assert 0 <= profile.noise < float("inf")


@given(st.integers(0, len(WHOLE) - 3))
def test_a_cut_profile_is_refused(length: int) -> None:
    with pytest.raises(BadFile):
        read_profile(WHOLE[:length], "p.json")


def test_profiles_are_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    (tmp_path / "planted-2.json").write_bytes(WHOLE)
    assert find_profile("Planted-2") == find_profile(str(tmp_path / "planted-2.json")) == planted_profile()
    with pytest.raises(UnknownName, match="no profile named 'planted-3'"):
        find_profile("planted-3")
    with pytest.raises(UnknownName) as raised:
        find_profile("RTX 3090")
    assert raised.value.hint == "to plan for this GPU: --gpu rtx-3090"
    with pytest.raises(BadFile, match="cannot read"):
        find_profile(str(tmp_path))


def test_every_shipped_profile_can_be_read() -> None:
    """With its origin, taken on an idle machine."""
    for name in module.profile_names():
        profile = find_profile(name)
        assert profile.origin and profile.noise < 0.05
