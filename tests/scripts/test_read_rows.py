"""Adding others' measurements is pasting them; what is wrong with a row is one line."""

import sys
from pathlib import Path

import pytest

from ggbench.models.published.benches import ROWS_FILE, SOURCES_FILE, parse_benches
from scripts import read_rows
from tests.scripts.test_llama_bench_pasted import CUDA, VULKAN

NEW = ("--title", "Speed of my cards", "--address", "https://example.org/cards")


class Reader:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys

    def __call__(self, text: str, *options: str) -> tuple[int | str | None, list[str]]:
        """Return the exit code and the lines printed."""
        paste = self.folder / "paste.md"
        paste.write_text(text, "utf-8")
        args = ["--source", "cards", "--date", "2026-02", "--data", str(self.folder), *options, str(paste)]
        self.monkeypatch.setattr(sys, "argv", ["read_rows", *args])
        try:
            code: int | str | None = read_rows.main()
        except SystemExit as end:
            code = end.code
        return code, self.capsys.readouterr().out.splitlines()

    @property
    def rows(self) -> list[tuple[object, ...]]:
        file = self.folder / ROWS_FILE
        rows = parse_benches(file.read_text("utf-8")) if file.exists() else []
        return [(row.device, row.count, row.model, row.quant, row.test, row.n_depth, row.tok_s) for row in rows]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    return Reader(tmp_path, monkeypatch, capsys)


def test_pasted_rows_are_added_with_their_source(read: Reader) -> None:
    assert read(CUDA, *NEW) == (0, ["2 rows of cards added"])
    assert read(VULKAN) == (0, ["2 rows of cards added"])
    assert read.rows == [
        ("rtx-3090", 2, "gpt-oss 20B", "mxfp4", "pp2048", 4096, 4158.34),
        ("rtx-3090", 2, "gpt-oss 20B", "mxfp4", "tg32", 4096, 79.22),
        ("arc-b580", 1, "qwen3 0.6B", "q8_0", "pp512", 0, 489.15),
        ("arc-b580", 1, "qwen3 0.6B", "q8_0", "tg128", 0, 66.13),
    ]
    assert (read.folder / SOURCES_FILE).read_text("utf-8").count("[[source]]") == 1


def test_what_is_there_is_not_added_again(read: Reader) -> None:
    read(CUDA, *NEW)
    code, lines = read(CUDA, "--source", "elsewhere")
    assert code == 5
    assert lines[0] == "paste.md: rtx-3090 gpt-oss 20B mxfp4 pp2048 4158.34: already there"
    assert len(read.rows) == 2


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("79.22", "1000000.00", "paste.md, line 8: 1e+06 tok/s would read at least"),
        ("    tg32 @ d4096", " pp512+tg32", "pp512+tg32 is a prompt and an answer in one rate"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_is_left_out_with_one_line(read: Reader, before: str, after: str, what: str) -> None:
    code, lines = read(CUDA.replace(before, after), *NEW)
    assert code == 0
    assert len(lines) == 2
    assert any(what in line for line in lines)
    assert [row[4] for row in read.rows] == ["pp2048"]


def test_text_without_a_table_of_llama_bench_says_what_to_paste(read: Reader) -> None:
    code, lines = read("I get 40 tok/s\n", *NEW)
    assert code == 5
    assert lines[0] == "paste.md: no row of llama-bench in it; paste the table with its header, or JSON or CSV"


def test_the_device_has_to_be_known(read: Reader) -> None:
    without = "\n".join(line for line in CUDA.splitlines() if "Device" not in line)
    code, lines = read(without, *NEW)
    assert (code, len(lines)) == (5, 3)
    assert "no log line names the device, so state --device" in lines[0]
    mixed = CUDA.replace("Device 1: NVIDIA GeForce RTX 3090", "Device 1: NVIDIA GeForce RTX 3060")
    assert "several kinds of device" in read(mixed, *NEW)[1][0]
    assert read(without, *NEW, "--device", "My card", "--count", "4")[0] == 0
    assert {row[:2] for row in read.rows} == {("My card", 4)}


def test_a_dry_run_writes_nothing(read: Reader) -> None:
    assert read(CUDA, "--dry-run") == (0, ["2 rows could be added"])
    assert read.rows == []


EXPORTED = """\
### Rows

```csv
source,device,count,backend,model,quant,weight_bytes,n_params,test,n_depth,tok_s,stddev,build,date
,rtx-3090,,CUDA,qwen3 0.6B,q8_0,633495552,596049920,tg512,25,210.25,1.5,b9000,2026-11
,NVIDIA GeForce RTX 3070,2,CUDA,qwen3 0.6B,q8_0,633495552,596049920,tg512,25,110.25,,b9000,2026-11
,rtx-3090,,CUDA,qwen3 0.6B,q8_0,,,tg512,25,fast,,b9000,2026-11
,rtx-3090,,CUDA,qwen3 0.6B,q8_0,633495552,596049920,tg512,25,9999,,b9000,2026-11
,rtx-3090,,OpenGL,qwen3 0.6B,q8_0,,,tg512,25,99,,b9000,2026-11
,rtx-3090,,CUDA,qwen3 0.6B,q9_9,,,tg512,25,99,,b9000,2026-11
,rtx-3090,,CUDA,qwen3 0.6B,q8_0,,,tg512,25,99
```

it was cold, with the window open
"""


def test_rows_that_ggbench_exported_are_added_and_what_is_wrong_is_refused(read: Reader) -> None:
    code, lines = read(EXPORTED, *NEW)
    assert code == 0
    assert read.rows == [
        ("rtx-3090", 1, "qwen3 0.6B", "q8_0", "tg512", 25, 210.25),
        ("rtx-3070", 2, "qwen3 0.6B", "q8_0", "tg512", 25, 110.25),
    ]
    refused = ["Expected `float`", "tok/s would read at least", "OpenGL is none of", "q9_9 is no quant", "11 cells"]
    assert len(lines) == len(refused) + 1
    for number, (line, what) in enumerate(zip(lines, refused, strict=False), start=7):
        assert line.startswith(f"paste.md, line {number}: ") and what in line
    assert "already there" in read(EXPORTED)[1][0]
