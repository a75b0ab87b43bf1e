"""Names of files in public repos: model, draft or projector, and of which quant, by name, on the Hub, on a disk."""

from collections import defaultdict
from pathlib import Path

import pytest

from ggbench.errors import UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.quants import model_name, quant_label, role
from ggbench.hub.access import HubAccess
from ggbench.hub.listing import list_repo
from ggbench.models.disk import models_in_place
from ggbench.models.reference import parse_model
from ggbench.models.targets import drafts_beside, resolve, resolve_headers
from tests.fakes.hub import TestHub
from tests.fakes.named_files import NAMED_FILES, NamedFile


def of_repos() -> dict[str, list[NamedFile]]:
    found = defaultdict(list)
    for each in NAMED_FILES:
        found[each.repo].append(each)
    return dict(found)


PUBLISHED = {repo: files for repo, files in of_repos().items() if "/" in repo}


def put(hub: TestHub, repo: str) -> None:
    hub.add_repo(repo, {path: content for each in PUBLISHED[repo] for path, content in each.contents()})


@pytest.mark.parametrize("file", NAMED_FILES, ids=lambda file: file.path)
def test_a_name_counts_until_the_header_is_read(file: NamedFile, tmp_path: Path) -> None:
    assert role(file.path) == (file.named or file.role)
    assert quant_label(file.path) == file.quant
    for path, content in file.contents():
        (tmp_path / Path(path).name).write_bytes(content)
    read = read_model_file(tmp_path / Path(file.path).name)
    assert role("any.gguf", read.metadata, read.tensors) == role(file.path, read.metadata, read.tensors) == file.role


@pytest.mark.parametrize("repo", PUBLISHED)
def test_a_plan_of_a_repo_is_one_of_its_models(hub: TestHub, repo: str) -> None:
    """A draft whose name is a model's is left out once its header is read; what a row shows selects it."""
    put(hub, repo)
    models = [each for each in PUBLISHED[repo] if each.role == "model"]
    planned = resolve_headers(parse_model(repo))
    if not models:
        assert [target.file.architecture for target in planned if target.file] == ["eagle3"]
        return
    assert {target.quant for target in planned} == {each.quant or "q8_0" for each in models}
    for target in planned:
        [again] = resolve(parse_model(repo, target.quant.upper().replace("_", "")))
        assert again.published is not None and target.published is not None
        assert again.published.variant.files == target.published.variant.files
    listing = list_repo(HubAccess.from_environment(), repo)
    drafts = [each for each in PUBLISHED[repo] if each.role == "draft"]
    assert {file.path for file in listing.sidecars} == {
        each.path for each in PUBLISHED[repo] if role(each.path) not in ("model", "draft")
    }
    for draft in drafts:
        [target] = resolve_headers(parse_model(f"{repo}:{model_name(draft.path)}"))
        assert target.file is not None and target.file.architecture == draft.architecture


@pytest.mark.parametrize("repo", PUBLISHED)
def test_files_on_a_disk_are_told_by_their_headers(tmp_path: Path, repo: str) -> None:
    for each in PUBLISHED[repo]:
        for path, content in each.contents():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(content)
    found = {model.paths[0].relative_to(tmp_path).as_posix(): model.is_draft for model in models_in_place(tmp_path)}
    assert found == {each.path: each.role == "draft" for each in PUBLISHED[repo] if each.role in ("model", "draft")}


def test_a_quant_of_a_model_is_not_that_of_its_draft(hub: TestHub) -> None:
    repo = "unsloth/gemma-4-E2B-it-GGUF"
    put(hub, repo)
    [target] = resolve(parse_model(repo, "q8_0"))
    assert target.published is not None and target.published.variant.name == "gemma-4-E2B-it-Q8_0"
    list_repo(HubAccess.from_environment(), repo)
    drafts = drafts_beside(parse_model(repo), HubAccess.from_environment())
    assert f"{repo}:MTP/gemma-4-E2B-it-Q8_0-MTP" in drafts
    with pytest.raises(UsageError, match="no quant named 'bf16'"):
        resolve(parse_model(repo, "bf16"))
