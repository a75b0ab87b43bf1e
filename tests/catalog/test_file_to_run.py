"""The file that a person would run of a planned quant."""

from pathlib import Path

from msgspec.structs import replace

from ggbench.hub.access import HubAccess
from ggbench.models.reference import parse_model
from ggbench.models.targets import materialize, resolve_headers, resolve_one
from tests.fakes.hub import TestHub


def test_a_published_quant_knows_where_its_download_lands(hub: TestHub, tiny_twin: Path) -> None:
    hub.add_repo("org/tiny", {"tiny-q8_0.gguf": tiny_twin})
    access = HubAccess.from_environment()
    (before,) = (each.to_run for each in resolve_headers(parse_model("org/tiny", "q8_0"), hub=access))
    assert before is not None
    assert (before.model, before.quant, before.repo, before.is_here) == ("org/tiny", "q8_0", "org/tiny", False)
    (twin,) = (each.to_run for each in resolve_headers(parse_model("twin:org/tiny", "q8_0"), hub=access))
    assert twin == replace(before, model="hf:org/tiny")
    materialize(resolve_one(parse_model("org/tiny", "q8_0"), hub=access))
    (after,) = (each.to_run for each in resolve_headers(parse_model("org/tiny", "q8_0"), hub=access))
    assert after == replace(before, is_here=True)
    assert all(path.is_file() for path in before.paths)
