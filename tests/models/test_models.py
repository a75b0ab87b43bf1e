"""The catalog: shipped figures against published ones, and merging and checking of the user's own file."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench.errors import UsageError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model, build_tensors
from ggbench.gguf_file.model_file import SCALED_KEY
from ggbench.gguf_file.twin import plan_twin
from ggbench.models.catalog import Catalog, load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import draft_ref, resolve
from ggbench.sizing.theory.weights import count_parameters as count_by_role

WriteModels = Callable[[str], Path]

SHAPE = """\
architecture = "qwen2"
n_layer = 16
n_embd = 2048
n_head = 16
n_head_kv = 8
n_ff = 5504
n_vocab = 151936
n_ctx_train = 32768
"""

PUBLISHED_PARAMETERS = {
    "qwen1.5-1.8b": 1_836_828_672, "qwen1.5-4b": 3_950_369_280, "qwen1.5-7b": 7_721_324_544,
    "qwen1.5-14b": 14_167_290_880, "qwen1.5-32b": 32_512_218_112, "qwen1.5-72b": 72_287_920_128,
    "qwen1.5-110b": 111_209_914_368, "qwen1.5-moe-a2.7b": 14_315_784_192, "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304, "qwen2-7b": 7_615_616_512, "qwen2-57b-a14b": 57_408_658_944,
    "qwen2-72b": 72_706_203_648, "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688, "qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352, "qwen2.5-72b": 72_706_203_648, "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496, "llama-3.2-1b": 1_235_814_400, "llama-3.2-3b": 3_212_749_824,
    "qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200, "qwen3-32b": 32_762_123_264, "qwen3-30b-a3b": 30_532_122_624,
    "gemma-3-1b": 999_885_952, "gemma-3-4b": 3_880_263_168, "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304, "mistral-7b-v0.3": 7_248_023_552, "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200, "mixtral-8x7b": 46_702_792_704, "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760, "gpt-oss-20b": 20_914_757_184, "gpt-oss-120b": 116_829_156_672,
    "deepseek-v2-lite": 15_706_484_224,
}  # fmt: skip
"""Parameters of the safetensors files as the Hub's model pages count them: a tied embedding once."""

UNTIED_IN_GGUF = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b")
"""Tied by their config, while the official GGUFs hold an output matrix too."""


PUBLISHED_TENSOR_BYTES = {
    ("llama-3.1-8b", "q4_k_m"): 4_912_898_304, ("qwen3-1.7b", "q8_0"): 1_828_474_880,
    ("qwen3-4b", "q4_k_m"): 2_491_323_904, ("qwen3-8b", "q4_k_m"): 5_021_827_072,
    ("qwen3-14b", "q4_k_m"): 8_995_793_920, ("qwen3-30b-a3b", "q4_k_s"): 17_450_039_296,
    ("gemma-3-1b", "q4_k_m"): 799_525_120, ("gemma-3-12b", "q8_0"): 12_503_660_544,
    ("gemma-3-27b", "q8_0"): 28_701_409_280, ("mistral-7b-v0.3", "q4_k_m"): 4_372_054_016,
    ("mistral-small-24b", "q5_k_m"): 16_756_101_120, ("phi-4", "q8_0"): 15_576_944_640,
    ("gpt-oss-120b", "mxfp4"): 63_374_323_968,
}  # fmt: skip
"""Bytes of the tensors of published files as llama-server and llama-bench print them (`size`, `model_size`)."""

PRINTED = {
    ("qwen3.5-27b", "q4_k_m"): (15.40, 26.90), ("qwen3.6-35b-a3b", "bf16"): (64.60, 34.66),
    ("gemma-4-31b", "bf16"): (57.18, 30.70), ("gemma-4-26b-a4b", "bf16"): (47.02, 25.23),
    ("glm-4.7-flash", "q8_0"): (29.65, 29.94), ("deepseek-v3", "q8_0"): (664.29, 671.03),
    ("qwen3.5-9b", "q8_0"): (8.86, 8.95), ("qwen3.5-4b", "bf16"): (7.84, 4.21),
    ("seed-oss-36b", "q4_k_m"): (20.26, 36.15), ("nemotron-nano-9b-v2", "q6_k"): (8.50, 8.89),
    ("nemotron-nano-9b-v2", "q4_k_m"): (6.07, 8.89),
    ("deepseek-v3", "q5_k_m"): (442.74, 671.03), ("deepseek-r1", "q4_k_m"): (376.65, 671.03),
}  # fmt: skip
"""GiB and billions of parameters that llama-bench printed for published files (tables in public repositories)."""

PUBLISHED_SIZES = tomllib.loads((Path(__file__).parents[1] / "data" / "published_sizes.toml").read_text())
"""GiB, or bytes if whole, by publisher, model and quant."""
WITH_SIZES = sorted({model_id for models in PUBLISHED_SIZES.values() for model_id in models})
MOST_BYTES_OF_A_TOKEN = 70
"""Share of a token in the tokenizer of a published file, which a twin lacks; 41 to 65 in those of known size."""

PRINTED_PARAMETERS = {
    "qwen3.5-122b-a10b": 122.11, "qwen3.8-27b": 27.32, "gemma-4-e4b": 7.52, "glm-4.6": 356.79, "llama-4-scout": 107.77,
    "ministral-3-8b": 8.49, "ministral-3-14b": 13.51, "llama-4-maverick": 400.71, "minimax-m2.5": 228.69,
    "nemotron-3-nano-30b-a3b": 31.58,
    "qwen3.5-2b": 1.88, "gemma-4-e2b": 4.65, "granite-4.0-h-tiny": 6.94, "glm-4.5-air": 110.47,
    "nemotron-3-super-120b-a12b": 120.67, "kimi-linear-48b-a3b": 49.12,
}  # fmt: skip
"""Files whose mixture of types is their publisher's own; Kimi Linear's is that of its index of safetensors."""


@pytest.fixture
def write_models(tmp_path: Path) -> WriteModels:
    def write(text: str) -> Path:
        path = tmp_path / "models.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def shipped(tmp_path: Path) -> Catalog:
    return load_catalog(tmp_path / "none.toml")


def count_parameters(hyper: Hyperparameters) -> int:
    return sum(tensor.n_elements for tensor in build_tensors(hyper))


@pytest.mark.parametrize(("model_id", "n_params"), PUBLISHED_PARAMETERS.items())
def test_shape_has_the_published_parameter_count(shipped: Catalog, model_id: str, n_params: int) -> None:
    """The count depends on every dimension, the padded vocabulary and tied embeddings: a match checks them all."""
    hyper = shipped.model(model_id).hyper
    output = hyper.n_vocab * hyper.n_embd if model_id in UNTIED_IN_GGUF else 0
    rope_freqs = hyper.n_embd_head // 2 if hyper.rope_freqs else 0
    assert count_parameters(hyper) == n_params + output + rope_freqs


@pytest.mark.llama
@pytest.mark.parametrize(("model_id", "quant"), PUBLISHED_TENSOR_BYTES)
def test_planned_tensors_have_the_bytes_of_the_published_file(shipped: Catalog, model_id: str, quant: str) -> None:
    planned = plan_twin(shipped.model(model_id).hyper, [quant], name=model_id)[quant]
    assert planned.weight_bytes == PUBLISHED_TENSOR_BYTES[model_id, quant]


@pytest.mark.llama
@pytest.mark.parametrize(("model_id", "quant"), PRINTED)
def test_planned_tensors_have_the_size_that_llama_bench_printed(shipped: Catalog, model_id: str, quant: str) -> None:
    planned = plan_twin(shipped.model(model_id).hyper, [quant], name=model_id)[quant]
    gib, billions = PRINTED[model_id, quant]
    assert planned.weight_bytes is not None
    assert planned.weight_bytes / 2**30 == pytest.approx(gib, rel=3e-4, abs=0.006)
    assert round(planned.n_params / 1e9, 2) == billions


@pytest.mark.llama
@pytest.mark.parametrize("model_id", WITH_SIZES)
def test_planned_files_have_the_published_sizes(shipped: Catalog, model_id: str) -> None:
    """Within 0.5 %, besides the tokenizer and the rounding."""
    hyper = shipped.model(model_id).hyper
    sizes = {quant: size for models in PUBLISHED_SIZES.values() for quant, size in models.get(model_id, {}).items()}
    for quant, planned in plan_twin(hyper, list(sizes), name=model_id).items():
        size, tokenizer_bytes = sizes[quant], hyper.n_vocab * MOST_BYTES_OF_A_TOKEN
        is_exact, n_digits = isinstance(size, int), len(str(size).partition(".")[2])
        published, rounding = (size, 0) if is_exact else (size * 2**30, 2**30 * 10**-n_digits / 2)
        least, most = planned.file_bytes * 0.995, (planned.file_bytes + tokenizer_bytes) * 1.005
        assert least - rounding <= published <= most + rounding, quant


@pytest.mark.parametrize(("model_id", "billions"), PRINTED_PARAMETERS.items())
def test_shapes_have_the_parameters_that_llama_bench_printed(shipped: Catalog, model_id: str, billions: float) -> None:
    assert round(count_parameters(shipped.model(model_id).hyper) / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("model_id", "n_active"),
    [("qwen3-30b-a3b", 3_353_032_704), ("mixtral-8x7b", 12.88e9), ("gpt-oss-20b", 3.61e9), ("gpt-oss-120b", 5.13e9)],
)
def test_a_token_has_the_published_number_of_active_parameters(
    shipped: Catalog, model_id: str, n_active: float
) -> None:
    parameters = count_by_role(build_model(shipped.model(model_id).hyper, model_id))
    embedding = 0 if model_id.startswith("gpt-oss") else parameters.embedding
    assert parameters.active + embedding == pytest.approx(n_active, rel=0.002)


def test_file_pattern_gives_the_names_that_the_official_repos_use(shipped: Catalog) -> None:
    names = {}
    for model_id in ("qwen1.5-0.5b", "qwen2-1.5b", "qwen2.5-1.5b"):
        model = shipped.model(model_id)
        assert model.file_pattern
        names[model.repo] = model.file_pattern.format(quant="q4_k_m")
    assert names == {
        "Qwen/Qwen1.5-0.5B-Chat-GGUF": "qwen1_5-0_5b-chat-q4_k_m.gguf",
        "Qwen/Qwen2-1.5B-Instruct-GGUF": "qwen2-1_5b-instruct-q4_k_m.gguf",
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF": "qwen2.5-1.5b-instruct-q4_k_m.gguf",
    }


@pytest.mark.llama
def test_a_published_file_of_another_mixture_is_planned_with_its_size(shipped: Catalog) -> None:
    """q5_k_m is its publisher's own mixture if only that is published, as in a repo; its twin is llama.cpp's."""
    for model_id, quant, published in (
        ("gemma-4-26b-a4b", "q5_k_m", "ud-q5_k_m"),
        ("qwen3.5-0.8b", "q4_k_m", "q4_k_m"),
        ("gemma-4-e2b", "q3_k_m", "q3_k_m"),  # smaller than llama.cpp's
    ):
        size = shipped.model(model_id).file_bytes[published]
        own, twin = (resolve(parse_model(name, quant), headers_only=True)[0] for name in (model_id, f"twin:{model_id}"))
        file, plain = own.header(), twin.header()
        assert twin.model == f"twin:{model_id}"
        assert file.file_bytes == size
        assert SCALED_KEY in file.metadata and SCALED_KEY not in plain.metadata
        assert file.weight_bytes and plain.weight_bytes
        assert file.weight_bytes - plain.weight_bytes == pytest.approx(size - plain.file_bytes, abs=1000)
        assert file.shape_key != plain.shape_key
    (target,) = resolve(parse_model("gemma-4-26b-a4b", "q8_0"), headers_only=True)
    assert SCALED_KEY not in target.header().metadata and target.header().is_twin


def test_every_model_is_current_or_ends_in_one_that_is(shipped: Catalog) -> None:
    """Each names one that the catalog has, without a circle; a score has its source."""
    for model in shipped:
        chain = [model, *shipped.successors(model)]
        assert [each.superseded_by for each in chain] == [*(each.id for each in chain[1:]), ""], model.id
        assert (model.score is None) == (not model.score_source), model.id
    current = {model.id for model in shipped.current}
    assert {"qwen3.8-27b", "qwen3.6-35b-a3b", "gpt-oss-20b"} < current
    assert not {"qwen3-14b", "qwen3.5-35b-a3b", "llama-3.1-8b"} & current
    assert [each.id for each in shipped.successors(shipped.model("qwen3.5-27b"))] == ["qwen3.6-27b", "qwen3.8-27b"]


def test_user_file_overrides_one_key_and_keeps_the_rest(write_models: WriteModels, shipped: Catalog) -> None:
    mine = load_catalog(write_models('[[model]]\nid = "qwen1.5-7b"\nrepo = "me/mirror"\n')).model("qwen1.5-7b")
    theirs = shipped.model("qwen1.5-7b")
    assert (mine.repo, mine.origin) == ("me/mirror", "user")
    assert (mine.hyper, mine.title, mine.quants) == (theirs.hyper, theirs.title, theirs.quants)


def test_user_file_adds_a_model_with_every_optional_key(write_models: WriteModels, shipped: Catalog) -> None:
    text = f"""
    [[model]]
    id = "mine"
    quants = ["Q4_K_M", "q4_k_m"]
    {SHAPE}
    head_dim = 128
    rope_freq_base = 10000
    norm_rms_eps = 1e-5
    tied_embeddings = true
    n_expert = 0
    """
    catalog = load_catalog(write_models(text))
    assert [model.id for model in catalog] == [*(model.id for model in shipped), "mine"]
    mine = catalog.model("mine")
    assert (mine.title, mine.repo, mine.file_pattern, mine.quants) == ("mine", None, None, ("q4_k_m",))
    assert (mine.hyper.head_dim, mine.hyper.rope_freq_base, mine.hyper.tied_embeddings) == (128, 10000, True)


def test_example_in_the_head_of_the_shipped_file_is_a_model(write_models: WriteModels) -> None:
    from ggbench.models.catalog import shipped_models_file

    head = shipped_models_file().read_text().split("\n\n")[0].splitlines()
    example = "\n".join(line.removeprefix("#") for line in head if line.startswith("#     "))
    assert load_catalog(write_models(example)).model("mine-1b").repo == "org/Mine-1B-GGUF"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[[model]]\nid = "a"\nn_layer = \n', "at line 3"),
        (f'[[model]]\nid = "a"\n{SHAPE.replace("16", "true", 1)}', "'a': Expected `int`, got `bool` - at `n_layer`"),
        (f'[[model]]\nid = "a"\n{SHAPE}n_heads = 3\n', "unknown field `n_heads`"),
        (f'[[model]]\nid = "b"\n{SHAPE}\n[[model]]\nid = "a"\nn_layer = 2\n', "'a': Object missing required field"),
        (f'[[model]]\nid = "a"\n{SHAPE}[[model]]\nid = "a"\n', "second model has the id 'a'"),
        ('[[model]]\ntitle = "no id"\n', "model '': Object missing required"),
        ('[[model]]\nid = "Org/Name"\n', "at `id`"),
        ('[[model]]\nid = "a"\nrepo = "../etc/passwd"\n', "at `repo`"),
        ('[[model]]\nid = "a"\ntitle = "red \\u001b[31m"\n', "at `title`"),
        ('\n["qwen1.5-7b"]\nrepo = "me/mirror"\n', "a model begins with [[model]]"),
        ('[[model]]\nid = "qwen1.5-7b"\nn_head = 33\n', "n_head"),
        ('[[model]]\nid = "qwen1.5-7b"\nn_ctx_train = 0\n', ">= 1 - at `n_ctx_train`"),
        ('[[model]]\nid = "qwen1.5-7b"\nrope_freq_base = nan\n', "> 0.0 - at `rope_freq_base`"),
        (f'[[model]]\nid = "a"\n{SHAPE.replace("16", "1_000_000", 1)}', "<= 512 - at `n_layer`"),
        ('[[model]]\nid = "a"\ntitle = "\xe9"\n', "utf-8"),
    ],
)  # fmt: skip
def test_a_broken_user_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text, "latin-1")
    with pytest.raises(UsageError) as caught:
        load_catalog(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert what in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_a_user_file_of_any_editor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_bytes(b'\xef\xbb\xbf[[model]]\r\nid = "qwen2-7b"\r\ntitle = "Mine"\r\n')
    assert load_catalog(path).model("Qwen2-7B").title == "Mine"


@pytest.mark.parametrize(
    ("text", "quants"),
    [
        ("qwen3-0.6b", ("q8_0",)), ("twin:Qwen3-0.6B", ("q8_0",)), ("qwen3-0.6b:q4_0", ("q4_0",)),
        ("muse-glimmer-30b", ("ud-q8_k_xl",)), ("gpt-oss-20b", ()), ("Qwen/Qwen3-0.6B-GGUF", ()),
    ],
)  # fmt: skip
def test_a_draft_of_the_catalog_is_its_q8_0(text: str, quants: tuple[str, ...]) -> None:
    """Or the mixture named after it; without either all are listed."""
    assert draft_ref(text).quants == quants
