"""What tells runs of one command apart."""

import pytest
from msgspec.structs import replace

from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.subject import Subject, model_name
from ggbench.show.names import distinct_by_engine, engine_names, model_names, models_title


def test_runs_are_named_by_their_engine_if_there_are_several() -> None:
    own, server, other = LlamaConfig(), LlamaServerConfig(command="/a/llama-server"), LlamaServerConfig(command="/b/s")
    assert distinct_by_engine(["m q8_0"] * 2, [own, own]) == ("m q8_0", "m q8_0")
    assert distinct_by_engine(["m q8_0"] * 3, [own, server, other]) == (
        "m q8_0, llama",
        "m q8_0, llama-server=/a/llama-server",
        "m q8_0, llama-server=/b/s",
    )
    b1, b2 = (LlamaServerConfig(command=f"/t/{folder}/llama-server -ub 64") for folder in ("b1", "b2"))
    assert engine_names([b1, b2]) == ("/t/b1/llama-server", "/t/b2/llama-server")
    assert engine_names([own, LlamaConfig(flash_attn="off")]) == ("llama", "llama --flash-attn off")
    assert LlamaServerConfig(command="/a/llama-server -t 1").with_threads(2).threads == 1


@pytest.mark.parametrize(
    ("model", "source", "file", "expected"),
    [
        ("qwen1.5-7b", "hub", "/hub/models--org--name/snapshots/1/x-q8_0.gguf", "qwen1.5-7b"),
        ("/home/me/models/x-q8_0.gguf", "file", "/home/me/models/x-q8_0.gguf", "x"),
        ("models/tiny", "file", "/home/me/models/tiny/x.gguf", "x.gguf"),
        (".", "file", "/home/me/tiny/Q8_0.gguf", "tiny"),
        ("/m/x-q8_0-00001-of-00002.gguf", "file", "/m/x-q8_0-00001-of-00002.gguf", "x"),
        ("..", "file", "", ".."),
        ("/m/\x1b[31mred.gguf", "file", "", "[31mred.gguf"),
    ],
)
def test_a_path_is_shown_by_its_name_without_the_quant(model: str, source: str, file: str, expected: str) -> None:
    assert model_name(Subject(model=model, quant="q8_0", source=source, file=file)) == expected


def of_file(file: str, quant: str = "q4_1", **facts: object) -> Subject:
    return replace(Subject(model=file, quant=quant, source="file", file=file), **facts)


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        ([of_file("/m/a/model.gguf"), of_file("/m/b/model.gguf")], ("/m/a/model.gguf", "/m/b/model.gguf")),
        ([of_file("/m/x-Q4_1.gguf"), of_file("/n/x-Q8_0.gguf", "q8_0")], ("x", "x")),
        ([of_file("/m/p/x-Q4_1.gguf"), of_file("/m/q/x-Q4_1.gguf")], ("/m/p/x-Q4_1.gguf", "/m/q/x-Q4_1.gguf")),
        ([of_file("/p/x.gguf", n_layer=2), of_file("/q/x.gguf", "q8_0", n_layer=3)], ("/p/x.gguf", "/q/x.gguf")),
    ],
)  # fmt: skip
def test_no_two_files_have_the_same_name(subjects: list[Subject], expected: tuple[str, ...]) -> None:
    """The whole path, where model and quant do not distinguish two files or two models."""
    assert model_names(subjects) == expected


def test_models_differ_by_architecture_and_shape() -> None:
    """Not by the words typed; a fact that one lacks decides nothing."""
    named = of_file("/m/x-Q4_1.gguf")
    known = replace(named, architecture="llama", n_layer=30, n_embd=576, n_params=135_000_000)
    assert known.has_other_shape(replace(known, model="y", quant="q8_0", architecture=None)) is False
    for change in ({"architecture": "gemma3"}, {"n_layer": 18}, {"n_embd": 640}, {"n_params": 1}):
        assert known.has_other_shape(replace(known, **change)) is True
    assert known.has_other_shape(named) is None


def test_files_of_a_folder_are_named_by_their_models_however_the_folder_is_written() -> None:
    for folder in ("models", "./models", "/home/u/models", "~/models"):
        subjects = [
            Subject(model=folder, quant=quant, source="file", file=f"/home/u/models/{name}-{quant.upper()}.gguf")
            for name, quant in (("SmolLM2", "q4_1"), ("gemma-3-270m", "q4_k_m"), ("SmolLM2", "q4_k_m"))
        ]
        assert model_names(subjects) == ("SmolLM2", "gemma-3-270m", "SmolLM2")
        assert models_title(subjects) == "SmolLM2, gemma-3-270m"
    downloaded = Subject(model="models", quant="q4_1", source="hub", file="/cache/models/x-Q4_1.gguf")
    assert model_names([downloaded]) == ("models",)
