"""Repo listings and search, with untrusted names."""

import json

import msgspec.structs
import pytest

from ggbench.errors import BadFile, NetworkError, UsageError
from ggbench.hub.access import HubAccess
from ggbench.hub.listing import cached_listing, list_repo, search_repos
from tests.fakes.hub import Cut, Says, TestHub, TooMany, Unavailable

REPO = "org/model-GGUF"
HEX = "0" * 40


def offline(access: HubAccess) -> HubAccess:
    return msgspec.structs.replace(access, offline=True)


def test_files_are_grouped_into_variants(access: HubAccess, hub: TestHub) -> None:
    commit = hub.add_repo(
        REPO,
        {
            "README.md": b"# hi", "config.json": b"{}", "mmproj-F16.gguf": b"1", "imatrix_unsloth.gguf": b"1",
            "m-Q4_K_M.gguf": bytes(40), "m-UD-Q4_K_XL.gguf": bytes(41), "m-IQ3_XXS.gguf": bytes(30),
            "BF16/m-BF16-00002-of-00003.gguf": bytes(62), "BF16/m-BF16-00001-of-00003.gguf": bytes(61),
            "BF16/m-BF16-00003-of-00003.gguf": bytes(63), "Q8_0/m-00001-of-00001.GGUF": bytes(80),
            "m.gguf": bytes(5),
        },
    )  # fmt: skip
    listing = list_repo(access, REPO)
    assert (listing.repo, listing.revision, listing.commit) == (REPO, "main", commit)
    assert [(variant.name, variant.quant, variant.file_bytes) for variant in listing.variants] == [
        ("BF16/m-BF16", "bf16", 186), ("Q8_0/m-00001-of-00001", "q8_0", 80), ("m-UD-Q4_K_XL", "ud-q4_k_xl", 41),
        ("m-Q4_K_M", "q4_k_m", 40), ("m-IQ3_XXS", "iq3_xxs", 30), ("m", None, 5),
    ]  # fmt: skip
    assert [file.n_bytes for file in listing.variants[0].files] == [61, 62, 63]
    assert not any(variant.missing for variant in listing.variants)
    assert [file.path for file in listing.sidecars] == ["imatrix_unsloth.gguf", "mmproj-F16.gguf"]
    assert listing.total_bytes == 382
    assert listing.listed_at.endswith("+00:00")
    held = hub.repos[REPO].commits[commit]
    for variant in listing.variants:
        for file in variant.files:
            assert (file.sha256, file.blob_id) == (held[file.path].sha256, held[file.path].blob_id)


def test_a_missing_shard_is_named(access: HubAccess, hub: TestHub) -> None:
    hub.add_repo(
        REPO,
        {
            "q/m-q8_0-00002-of-00003.gguf": bytes(9),
            "q/m-q8_0-00001-of-00002.gguf": bytes(4),
            "q/m-q8_0-00002-of-00002.gguf": bytes(4),
        },
    )
    broken, whole = list_repo(access, REPO).variants
    assert broken.missing == ("q/m-q8_0-00001-of-00003.gguf", "q/m-q8_0-00003-of-00003.gguf")
    assert (whole.missing, len(whole.files)) == ((), 2)
    assert broken.name != whole.name


def test_revisions_are_pinned(access: HubAccess, hub: TestHub) -> None:
    old = hub.add_repo(REPO, {"m-q8_0.gguf": b"old"}, revision="refs/pr/1")
    new = hub.add_repo(REPO, {"m-q8_0.gguf": b"newer"})
    assert [list_repo(access, REPO, each).commit for each in ("main", "refs/pr/1", old)] == [new, old, old]
    with pytest.raises(NetworkError, match=r"cannot find the revision .*nope"):
        list_repo(access, REPO, "nope")


@pytest.mark.parametrize("files", [{"a.safetensors": b"1", "config.json": b"{}"}, {"mmproj-f16.gguf": b"1"}, {}])
def test_a_repo_without_a_model_is_refused(access: HubAccess, hub: TestHub, files: dict[str, bytes]) -> None:
    hub.add_repo(REPO, files)
    with pytest.raises(UsageError, match="has no GGUF model") as raised:
        list_repo(access, REPO)
    assert "--search" in raised.value.hint
    assert cached_listing(access, REPO) is None


@pytest.mark.parametrize(
    "path",
    ["../m.gguf", "/m.gguf", "a//m.gguf", "a/./m.gguf", "a/../../m.gguf", "a\\m.gguf", "a\x1b[31m.gguf", "m\n.gguf"],
)
def test_a_path_outside_the_folder_is_rejected(access: HubAccess, hub: TestHub, path: str) -> None:
    hub.add_repo(REPO, {"fine-q8_0.gguf": b"1", path: b"2"})
    with pytest.raises(BadFile, match="outside its folder") as raised:
        list_repo(access, REPO)
    assert raised.value.message.isprintable()


@pytest.mark.parametrize("repo", ["", "name", "a/b/c", "../b", "a/..", "a b/c", "a/b\n", "a/b?x", "a/-b", "é/b"])
def test_an_invalid_repo_name_is_not_requested(access: HubAccess, hub: TestHub, repo: str) -> None:
    with pytest.raises(UsageError, match="not a valid repo name"):
        list_repo(access, repo)
    assert hub.requests == []


FILE = {"rfilename": "m-q8_0.gguf", "blobId": HEX, "size": 1}
INFO = {"id": REPO, "sha": HEX, "siblings": [FILE]}
WRONG_FILES: list[object] = [
    {"error": "no"}, [{**FILE, "size": -1}], [{**FILE, "size": "1"}], [{**FILE, "blobId": "../../../x"}],
    [{**FILE, "rfilename": None}], [{**FILE, "lfs": {"sha256": "sha256:x"}}], [[[]]],
]  # fmt: skip


@pytest.mark.parametrize(
    ("path_glob", "document"),
    [
        ("*/revision/*", []), ("*/revision/*", {"id": REPO}), ("*/revision/*", {**INFO, "sha": "../../etc"}),
        ("*/revision/*", {**INFO, "sha": HEX + "\n"}), ("*/revision/*", {**INFO, "id": 5}),
        ("*/revision/*", {**INFO, "id": "../../x"}), ("*/revision/*", {**INFO, "id": "org--model/GGUF"}),
        *(("*/revision/*", {**INFO, "siblings": siblings}) for siblings in WRONG_FILES), ("*", "[" * 100_000),
        ("*", "<html>log in to the hotel's network</html>"),
    ],
)  # fmt: skip
def test_a_response_of_the_wrong_shape_is_an_error(
    access: HubAccess, hub: TestHub, path_glob: str, document: object
) -> None:
    hub.add_repo(REPO, {"m-q8_0.gguf": b"1"})
    body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    hub.fail(path_glob, Says(body), times=None)
    with pytest.raises(NetworkError):
        list_repo(access, REPO)


@pytest.mark.parametrize("fault", [Cut(3), TooMany(0), Unavailable(503), Unavailable(502)])
def test_transient_errors_are_retried(access: HubAccess, hub: TestHub, fault: Cut | TooMany | Unavailable) -> None:
    hub.add_repo(REPO, {"m-q8_0.gguf": b"1"})
    hub.fail("*", fault, times=2)
    assert len(list_repo(access, REPO).variants) == 1


def test_offline_returns_the_cached_listing(access: HubAccess, hub: TestHub) -> None:
    hub.add_repo(REPO, {"m-q8_0-00001-of-00002.gguf": b"1", "mmproj-f16.gguf": b"2", "sub/m-q4_0.gguf": b"3"})
    listing = list_repo(access, REPO)
    asked = len(hub.requests)
    assert list_repo(offline(access), REPO) == listing
    assert list_repo(offline(access), REPO.upper()) == listing
    by_commit = list_repo(offline(access), REPO, listing.commit)
    assert by_commit == msgspec.structs.replace(listing, revision=listing.commit)
    assert cached_listing(access, REPO) == listing
    assert len(hub.requests) == asked
    for repo, revision in ((REPO, "other"), ("org/other", "main")):
        with pytest.raises(NetworkError, match="needs the network"):
            list_repo(offline(access), repo, revision)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff" * 100])
def test_a_damaged_cache_entry_is_ignored(access: HubAccess, hub: TestHub, damage: bytes) -> None:
    hub.add_repo(REPO, {"m-q8_0.gguf": b"1"})
    listing = list_repo(access, REPO)
    for path in access.listings_dir.iterdir():
        path.write_bytes(path.read_bytes()[:-5] + damage)
    with pytest.raises(NetworkError, match="needs the network"):
        list_repo(offline(access), REPO)
    assert list_repo(access, REPO).commit == listing.commit
    assert cached_listing(access, REPO) is not None


def test_the_token_is_not_cached(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add_repo(REPO, {"m-q8_0.gguf": b"1"})
    list_repo(access, REPO)
    assert all(request.had_token for request in hub.requests)
    kept = list(access.listings_dir.iterdir())
    assert kept
    assert not any(b"hf_secret" in path.read_bytes() for path in kept)


def test_a_search_finds_repos_with_gguf(access: HubAccess, hub: TestHub) -> None:
    hub.add_repo("org/Qwen-GGUF", {"m.gguf": b"1"}, gated=True)
    hub.add_repo("org/Qwen", {"m.safetensors": b"1"})
    hub.add_repo("me/qwen-gguf", {"m.gguf": b"1"})
    found = search_repos(access, "qwen")
    assert [(each.repo, each.gated) for each in found] == [("org/Qwen-GGUF", True), ("me/qwen-gguf", False)]
    assert found[0].downloads == 1000
    assert (found[0].last_modified or "").startswith("2026-01-02")
    assert len(search_repos(access, "qwen", limit=1)) == 1
    assert search_repos(access, "nothing & like=this") == ()
    with pytest.raises(NetworkError, match="needs the network"):
        search_repos(offline(access), "qwen")


def test_shards_without_end_and_files_of_one_quant_are_listed_apart(access: HubAccess, hub: TestHub) -> None:
    names = ("a/m-q8_0.gguf", "b/m-q8_0.gguf", "b/m-q8_0.GGUF", "b/m-q8_0-00001-of-00001.gguf")
    hub.add_repo(REPO, {"n-00001-of-99999.gguf": b"1"} | dict.fromkeys(names, b"12"))
    *found, split = list_repo(access, REPO).variants
    assert len({variant.name for variant in found}) == 4
    assert {variant.quant for variant in found} == {"q8_0"}
    assert 0 < len(split.missing) <= 100


def test_files_whose_names_look_the_same_are_told_apart(access: HubAccess, hub: TestHub) -> None:
    hub.add_repo(REPO, {"m-q8_0.gguf": b"12", "m-q8\u200b_0.gguf": b"1"})
    assert [each.name for each in list_repo(access, REPO).variants] == ["m-q8_0.gguf", r"m-q8\u200b_0.gguf"]


def test_a_cache_is_of_one_hub_and_may_be_missing(access: HubAccess, hub: TestHub) -> None:
    hub.add_repo(REPO, {"m-q8_0.gguf": b"1"})
    list_repo(access, REPO)
    elsewhere = msgspec.structs.replace(access, endpoint="https://elsewhere.example", offline=True)
    assert cached_listing(access, REPO) is not None
    assert cached_listing(elsewhere, REPO) is None
    nowhere = msgspec.structs.replace(access, listings_dir=next(access.listings_dir.iterdir()))
    assert list_repo(nowhere, REPO).variants
    assert cached_listing(nowhere, REPO) is None


def test_a_search_may_lack_values_and_lists_no_name_that_leads_elsewhere(access: HubAccess, hub: TestHub) -> None:
    rows = [{"id": "a/b", "gated": None}, {"id": "../x"}, {"id": "c/d", "gated": "manual", "lastModified": "\x1b[31m1"}]
    hub.fail("*", Says(json.dumps(rows).encode()))
    first, second = search_repos(access, "x")
    assert (first.repo, first.downloads, first.last_modified, first.gated) == ("a/b", None, None, False)
    assert (second.gated, second.last_modified) == (True, "[31m1")
