"""Resolution of MODEL and QUANT: the grammar, local files, and twins made on demand."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench import paths
from ggbench.errors import BadFile, GgbenchError, UnknownName, UsageError
from ggbench.models.reference import ModelRef, parse_model
from ggbench.models.targets import materialize, resolve, resolve_headers, resolve_one
from tests.models.conftest import MakeFile

TINY = """\
[[model]]
id = "tiny"
architecture = "qwen2"
n_layer = 2
n_embd = 256
n_head = 4
n_head_kv = 2
n_ff = 512
n_vocab = 512
n_ctx_train = 1024
"""


def _bare(ref: ModelRef) -> ModelRef:
    return replace(ref, label="", text="")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def tiny() -> None:
    user_file = paths.user_models_file()
    user_file.parent.mkdir(parents=True)
    user_file.write_text(TINY)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("qwen1.5-7b", ModelRef("catalog", "qwen1.5-7b")),
        ("Qwen1.5-7B:Q4_K_M", ModelRef("catalog", "qwen1.5-7b", ("q4_k_m",))),
        ("Qwen/Qwen1.5-7B-Chat-GGUF", ModelRef("hub", "Qwen/Qwen1.5-7B-Chat-GGUF")),
        ("org/name:UD-Q4_K_XL", ModelRef("hub", "org/name", ("ud-q4_k_xl",))),
        ("org/name:name-q4_0.gguf", ModelRef("hub", "org/name", ("name-q4_0.gguf",))),
        ("hf:org/name", ModelRef("hub", "org/name")),
        ("twin:qwen1.5-7b:q4_k_m", ModelRef("twin", "qwen1.5-7b", ("q4_k_m",))),
        ("twin:org/name:q8_0", ModelRef("published_twin", "org/name", ("q8_0",))),
        ("org/name@v1.0:q8_0", ModelRef("hub", "org/name", ("q8_0",), "v1.0")),
        ("twin:org/name@0123abc", ModelRef("published_twin", "org/name", revision="0123abc")),
        ("models/m.GGUF", ModelRef("path", "models/m.GGUF")),
        ("./name", ModelRef("path", "name")),
        ("/models/m:Q4_K_M", ModelRef("path", "/models/m", ("q4_k_m",))),
        ("/models/a:b/m.gguf", ModelRef("path", "/models/a:b/m.gguf")),
        ("m.gguf:q4_0", ModelRef("path", "m.gguf", ("q4_0",))),
        ("some/more/slashes", ModelRef("path", "some/more/slashes")),
        ("https://huggingface.co/org/name", ModelRef("hub", "org/name")),
        ("https://huggingface.co/org/name/tree/main", ModelRef("hub", "org/name")),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F3", ModelRef("hub", "org/name", revision="refs/pr/3")),
        ("https://huggingface.co/org/name/blob/main/m-q4_0.gguf", ModelRef("hub", "org/name", ("m-q4_0.gguf",))),
        (
            "http://hf.co/org/name/resolve/0123abc/in/m.gguf?download=true",
            ModelRef("hub", "org/name", ("in/m.gguf",), "0123abc"),
        ),
        ("https://huggingface.co/org/name/discussions/7", ModelRef("hub", "org/name")),
        ("hf.co/org/name:Q4_K_M", ModelRef("hub", "org/name", ("q4_k_m",))),
        ("http://hub.example:8080/hf/org/name/tree/main", ModelRef("hub", "org/name")),
        ("twin:https://huggingface.co/org/name", ModelRef("published_twin", "org/name")),
        ("http://127.0.0.1:8080", ModelRef("server", "http://127.0.0.1:8080")),
        ("HTTPS://Example.com/api/v1/", ModelRef("server", "https://example.com/api")),
        ("org/name/m-q4_0.gguf", ModelRef("hub", "org/name", ("m-q4_0.gguf",))),
        ("org/name@v1.0/in/m-q4_0.gguf", ModelRef("hub", "org/name", ("in/m-q4_0.gguf",), "v1.0")),
        ("models/org/m.gguf", ModelRef("path", "models/org/m.gguf")),
    ],
)
def test_model_is_parsed(text: str, ref: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form of DESIGN's grammar, with and without :QUANT, where nothing of that name is on the disk.

    What a command line says again means the same.
    """
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example:8080/hf/")
    assert _bare(parse_model(text)) == ref
    if ref.is_server:
        return
    label = parse_model(text).label
    assert "//" not in label
    assert _bare(parse_model(":".join((label, *ref.quants)))) == ref


def test_an_existing_path_is_a_path(make_file: MakeFile) -> None:
    make_file("org/name/m-q4_0.gguf", 1)
    make_file("qwen1.5-7b/m-q4_0.gguf", 1)
    make_file("odd:q4_0/m-q8_0.gguf", 1)
    assert _bare(parse_model("org/name")) == ModelRef("path", "org/name")
    assert _bare(parse_model("org/name:q4_0")) == ModelRef("path", "org/name", ("q4_0",))
    assert _bare(parse_model("hf:org/name")) == ModelRef("hub", "org/name")
    assert _bare(parse_model("qwen1.5-7b:m-q4_0.gguf")) == ModelRef("path", "qwen1.5-7b", ("m-q4_0.gguf",))
    assert _bare(parse_model("odd:q4_0")) == ModelRef("path", "odd:q4_0")
    assert _bare(parse_model("org/name/m-q4_0.gguf")) == ModelRef("path", "org/name/m-q4_0.gguf")
    assert _bare(parse_model("org/other/m-q4_0.gguf")) == ModelRef("path", "org/other/m-q4_0.gguf")
    address = "https://huggingface.co/org/name"
    assert _bare(parse_model(address)) == ModelRef("hub", "org/name")
    assert parse_model(address).label == "hf:org/name"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "a\0b", "twin:", "twin:../x", "hf:name", "hf:org/na me", "hf:org/name@", "hf:org/name@../x",
        "qwen1.5-7b:", "hf:org/name:", "https://example.com/org/name.gguf", "ftp://example.com/org/name",
        "https://huggingface.co", "https://huggingface.co/org", "http://user:key@127.0.0.1:8080",
        "http://127.0.0.1:8080?key=1", "http://127.0.0.1:x", "https://huggingface.co/datasets/org/name",
        "https://huggingface.co/org/name/blob/main/README.md", "https://huggingface.co/org/name/tree/main/q8_0",
        "https://huggingface.co/org/na me",
    ],
)  # fmt: skip
def test_an_invalid_model_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model(text)
    assert caught.value.hint


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("qwen-of-nobody", "ggbench models --search qwen-of-nobody"),
        ("https://huggingface.co/org/name/tree/main/q8_0", "org/name"),
    ],
)
def test_the_intended_form_is_suggested(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(parse_model(text))
    assert hint in caught.value.hint


@pytest.mark.usefixtures("folder")
def test_twin_without_a_quant_is_made_in_the_articles_eight(tmp_path: Path) -> None:
    targets = resolve(parse_model("twin:Qwen1.5-0.5B"))
    assert [target.quant for target in targets] == [
        "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k",
    ]  # fmt: skip
    assert {(target.model, target.provenance, target.path) for target in targets} == {
        ("twin:Qwen1.5-0.5B", "twin", None)
    }
    assert not paths.twins_dir().exists()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", [("twin:qwen1.5-7bb",), ("qwen1.5-7bb",), ("twin:qwen1.5-7b", "q4_k_mm")])
def test_unknown_id_or_quant_names_the_nearest(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UnknownName) as caught:
        resolve(parse_model(*arguments))
    assert "qwen1.5-7b" in caught.value.hint or "q4_k_m" in caught.value.hint.lower()


@pytest.mark.usefixtures("folder")
def test_a_name_of_ollama_hints_at_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(GgbenchError) as caught:
        resolve(parse_model("qwen3:14b"), headers_only=True)
    assert caught.value.hint.startswith("the catalog has qwen3-14b")


def test_a_quant_needs_no_separators(make_file: MakeFile) -> None:
    """The file of a folder and the twin are those of the name as llama.cpp spells it."""
    make_file("models/m-q4_k_m.gguf", 40)
    make_file("models/m-q8_0.gguf", 50)
    assert resolve_one(parse_model("models", "Q4-KM")).file_bytes == 40
    assert [each.quant for each in resolve(parse_model("twin:qwen1.5-0.5b", "q4km", "q4_km", "Q8-0"))] == [
        "q4_k_m", "q8_0",
    ]  # fmt: skip
    assert resolve_headers(parse_model("qwen1.5-0.5b:iq4xs"))[0].quant == "iq4_xs"


@pytest.mark.parametrize("text", ["checkpoint", "checkpoint/model.safetensors"])
def test_a_checkpoint_typed_as_a_path_is_pointed_at_its_name(text: str, make_file: MakeFile) -> None:
    make_file("checkpoint/model.safetensors", 40)
    with pytest.raises(BadFile) as caught:
        resolve(parse_model(text))
    assert caught.value.hint.endswith("transformers:checkpoint")


def test_folder_selects_all_its_variants(make_file: MakeFile) -> None:
    make_file("models/m-q4_0.gguf", 40)
    first = make_file("models/m-q8_0-00001-of-00002.gguf", 50)
    make_file("models/m-q8_0-00002-of-00002.gguf", 30)
    targets = resolve(parse_model("models"))
    assert [(t.model, t.quant, t.provenance, t.file_bytes) for t in targets] == [
        ("models", "q8_0", "file", 80),
        ("models", "q4_0", "file", 40),
    ]
    assert targets[0].path is not None
    assert targets[0].path.samefile(first)


def test_two_files_of_one_quant_are_selected_by_name(make_file: MakeFile) -> None:
    make_file("models/a-q8_0.gguf", 2 << 20)
    make_file("models/b-q8_0.gguf", 1 << 20)
    for ask in (lambda: resolve(parse_model("models", "q8_0")), lambda: resolve_one(parse_model("models"))):
        with pytest.raises(UsageError) as caught:
            ask()
        assert "a-q8_0 (2.00 MiB), b-q8_0 (1.00 MiB)" in caught.value.hint
    assert resolve_one(parse_model("models", "b-q8_0.gguf")).file_bytes == 1 << 20


def test_each_target_of_a_folder_is_selected_again(make_file: MakeFile) -> None:
    """Its quant selects it, or else its name, even for a broken file without a quant."""
    for name in ("a-q8_0.gguf", "b-q8_0.gguf", "in/b-q8_0.gguf", "c-q4_0.gguf", "model.gguf"):
        make_file(f"models/{name}", 40)
    targets = resolve(parse_model("models"))
    assert {target.named[1] for target in targets} == {"a-q8_0", "b-q8_0", "in/b-q8_0", "q4_0", "model"}
    assert [each.selector for each in resolve_headers(parse_model("models"))] == [target.named[1] for target in targets]
    assert [resolve_one(parse_model(*target.named)).path for target in targets] == [target.path for target in targets]


def test_control_characters_of_a_path_are_not_printed(make_file: MakeFile) -> None:
    make_file("red\x1b[31m/m\x07-q4_0.gguf", 1)
    (target,) = resolve(parse_model("red\x1b[31m"))
    assert target.model.isprintable()
    for model, quants in (("red\x1b[31m", ["q8_0"]), ("./gone\x1b", []), ("gone\x1b", []), ("hf:\x1b", [])):
        with pytest.raises(GgbenchError) as caught:
            resolve(parse_model(model, *quants))
        assert caught.value.message.isprintable()
        assert caught.value.hint.isprintable()


@pytest.mark.llama
@pytest.mark.usefixtures("folder", "tiny")
def test_twin_is_made_on_demand_and_reused(tmp_path: Path) -> None:
    target = resolve_one(parse_model("twin:tiny", "Q4_0"))
    reported: list[tuple[int, int]] = []
    made = materialize(target, lambda done, total: reported.append((done, total)))
    assert made.is_twin
    assert reported[-1] == (made.file_bytes, made.file_bytes)
    (path,) = made.paths
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert materialize(target).header_sha256 == made.header_sha256
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    renamed = path.rename(tmp_path / "model.gguf")
    given = resolve_one(parse_model(str(renamed)))
    assert (given.quant, given.provenance) == ("q4_0", "twin")
    assert materialize(given).is_twin


def test_a_twins_header_stays_the_same_from_version_to_version() -> None:
    """Stored runs have its hash, and a cached twin with another hash would be written again."""
    (target,) = resolve(parse_model("twin:qwen1.5-0.5b", "q8_0"))
    assert target.source is not None
    expected = "bca745175774599ae8a28ed541e4852036a4393662dd886dd1483c6c287d1ad8"
    assert target.source.header().header_sha256 == expected


@pytest.mark.parametrize(
    ("quant", "file"),
    [
        ("ud-q4_k_m", "m-UD-Q4_K_M.gguf"), ("fp16", "m-fp16.gguf"), ("F16", "m-fp16.gguf"), ("bf16", "m-bf16.gguf"),
        ("M-bf16", "m-bf16.gguf"), ("m-BF16.gguf", "m-bf16.gguf"),
    ],
)  # fmt: skip
def test_a_quant_of_a_folder_is_the_one_of_its_whole_name(quant: str, file: str, make_file: MakeFile) -> None:
    """In any case, or a file's name; UD- and bf are parts of a name, and fp16 is Qwen's spelling of f16."""
    for name in ("m-UD-Q4_K_M.gguf", "m-fp16.gguf", "m-bf16.gguf"):
        make_file(f"models/{name}", 40)
    path = resolve_one(parse_model("models", quant)).path
    assert path is not None and path.name == file


@pytest.mark.usefixtures("folder", "tiny")
@pytest.mark.parametrize(("model", "other"), [("models", "q4_0"), ("models/m-q8_0.gguf", ""), ("twin:tiny", "q4_k_m")])
def test_what_a_model_lacks_is_answered_with_what_it_has(model: str, other: str, make_file: MakeFile) -> None:
    """A command for one quant asks for it likewise, and writes no twin before."""
    for name, n_mib in (("m-q8_0.gguf", 3), ("m-q4_0.gguf", 2)):
        make_file(f"models/{name}", n_mib << 20)
    if not model.startswith("twin:"):
        with pytest.raises(UnknownName) as missing:
            resolve(parse_model(model, "q2_k"))
        assert "q8_0 (3.00 MiB)" in missing.value.hint
    if not model.endswith(".gguf"):
        with pytest.raises(UsageError) as several:
            resolve_one(parse_model(model))
        assert "q8_0" in several.value.hint and other in several.value.hint
    assert not paths.twins_dir().exists()


@pytest.mark.parametrize("model", ["empty", "./nowhere", "nowhere.gguf", "a/b/c", "~/nowhere.gguf"])
def test_a_path_without_a_model_is_a_bad_file(folder: Path, model: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(BadFile):
        resolve(parse_model(model))


def test_a_tilde_that_the_shell_left_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _bare(parse_model("~/m.gguf:q4_0")) == ModelRef("path", str(tmp_path / "m.gguf"), ("q4_0",))
