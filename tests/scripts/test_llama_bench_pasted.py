"""llama-bench's output as people paste it: the layouts of its versions, the devices in the log, and broken rows."""

import pytest

from ggbench.errors import BadFile
from scripts.llama_bench_pasted import PastedRow, read_pasted

CUDA = """
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
  Device 1: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
| model   |   size |   params | backend    | ngl | fa |   test |   t/s |
| -------------------------- | -----: | -----: | ------ | --: | -: | ----------: | ---------------: |
| gpt-oss 20B MXFP4 MoE   |  11.27 GiB |    20.91 B | CUDA   |  99 |  1 |  pp2048 @ d4096 |   4158.34 ± 18.84 |
| gpt-oss 20B MXFP4 MoE   |  11.27 GiB |    20.91 B | CUDA   |  99 |  1 |    tg32 @ d4096 |   79.22 ± 0.60 |

build: 11fb327bf (7941)
"""
OLD = """
ggml_metal_init: found device: Apple M1
| model   |   size |   params | backend    | ngl |    threads | test   |   t/s |
| ------------------------- | -----: | -----: | ------ | --: | -----: | ------ | -----------: |
| LLaMA 7B mostly Q4_K - Medium |   3.80 GiB |   6.74 B | Metal   |   1 |   4 | pp 512   |    116.02 ± 0.34 |
| LLaMA 7B mostly Q4_K - Medium |   3.80 GiB |   6.74 B | Metal   |   1 |   4 | tg 128   |   11.54 ± 0.04 |

build: 8781013 (1084)
"""
VULKAN = """
ggml_vulkan: Found 1 Vulkan devices:
ggml_vulkan: 0 = Intel(R) Arc(tm) B580 Graphics (BMG G21) (Intel open-source Mesa driver) | uma: 0 | fp16: 1
build: 12bbc3fa (6715)
> | model | size | params | backend | ngl | test | t/s |
> | --- | --- | --- | --- | --- | --- | --- |
ggml_vulkan: Compiling shaders..........................Done!
> | qwen3 0.6B Q8_0 | 604.15 MiB | 596.05 M | Vulkan | 99 | pp512 | 489.15 Â± 0.33 |
> | qwen3 0.6B Q8_0 | 604.15 MiB | 596.05 M | Vulkan | 99 | tg128 | 66.13 Â± 0.34 |
"""
SYCL = """
model | size | params | backend | ngl | test | t/s
-- | -- | -- | -- | -- | -- | --
found 1 SYCL devices:
|ID|   Device Type|   Name|Version|units  |group   |group|size   |   Driver version|
|--|---------------|-----------------------------------|---|---|----|-----|---|-----------------|
| 0| [level_zero:gpu:0]|   Intel Arc A770 Graphics [0x56a0]  |   12.5|    512|    1024|   32| 16225M|   1.3.26241|
llama 7B Q4_0 | 3.83 GiB | 7.24 B | SYCL | 99 | pp 128 | 407.14 ± 58.05
llama 7B Q4_0 | 3.83 GiB | 7.24 B | SYCL | 99 | tg 128 | 31.32 ± 0.10

| Model | Speed |
|---|---|
| tg128 of another | 12 |
"""


def rows(text: str) -> list[PastedRow]:
    found = list(read_pasted(text, "paste"))
    assert all(isinstance(each, PastedRow) for each in found), found
    return [each for each in found if isinstance(each, PastedRow)]


def test_a_table_says_devices_depth_and_build() -> None:
    prompt, decode = rows(CUDA)
    assert prompt.devices == ("NVIDIA GeForce RTX 3090",) * 2
    assert (prompt.row.test, decode.row.test) == ("pp2048 @ d4096", "tg32 @ d4096")
    assert decode.row.integer("model_size") == round(11.27 * 2**30)
    assert decode.row.integer("model_n_params") == 20_910_000_000
    assert (decode.row.number("avg_ts"), decode.row.number("stddev_ts")) == (79.22, 0.60)
    assert (decode.row.integer("build_number"), decode.row.integer("flash_attn")) == (7941, 1)


@pytest.mark.parametrize(
    ("text", "device", "build", "tests"),
    [
        (OLD, "Apple M1", 1084, ["pp512", "tg128"]),
        (VULKAN, "Intel(R) Arc(tm) B580 Graphics", 6715, ["pp512", "tg128"]),
        (SYCL, "Intel Arc A770 Graphics [0x56a0]", 0, ["pp128", "tg128"]),
    ],
    ids=["2023", "quoted, its build above", "without outer bars, around a table of devices"],
)
def test_other_layouts(text: str, device: str, build: int, tests: list[str]) -> None:
    found = rows(text)
    assert [each.row.test for each in found] == tests
    assert {each.devices for each in found} == {(device,)}
    assert {each.row.integer("build_number") for each in found} == {build}


def test_each_log_and_build_belongs_to_its_table() -> None:
    found = rows(OLD + CUDA + OLD.replace("M1", "M2").replace("1084", "1085"))
    assert [each.row.integer("build_number") for each in found] == [1084, 1084, 7941, 7941, 1085, 1085]
    assert [each.devices[0] for each in found[::2]] == ["Apple M1", "NVIDIA GeForce RTX 3090", "Apple M2"]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("|  99 |  1 |    tg32", "|  99 |    tg32", "line 8: it has 7 cells under 8 headers"),
        ("79.22 ± 0.60", "fast", "'fast' is not a speed such as 12.34 ± 0.56"),
        ("  tg32 @ d4096", "tg32 at 4096", "'tg32 at 4096' is not a test"),
    ],
)  # fmt: skip
def test_a_broken_row_is_one_line_and_the_others_are_read(before: str, after: str, what: str) -> None:
    good, bad = list(read_pasted(CUDA.replace(before, after), "paste"))
    good, bad = (bad, good) if isinstance(good, BadFile) else (good, bad)
    assert isinstance(good, PastedRow)
    assert good.row.test == "pp2048 @ d4096"
    assert isinstance(bad, BadFile)
    assert what in bad.message
    assert "\n" not in bad.message
