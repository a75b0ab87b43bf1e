"""report: every form, what it refuses, and what untrusted names can do."""

import csv
import io
import json
import re
import resource
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.engines.http.config import LlamaServerConfig
from ggbench.experiments.maxctx.record import MaxctxResult, Probe
from ggbench.runs.store.database import Store
from tests.cli.conftest import Run
from tests.fakes import machines
from tests.fakes.measured import fill, put_run, put_search, start

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>&\x1b[2J\u202e"
FORMULA = "=cmd|' /C calc'!A1"


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        (self.scripts if self._in_script else self.texts).append(data)


@pytest.fixture
def filled() -> None:
    fill(paths.results_file())
    probes = tuple(
        Probe(n_ctx, "alloc", outcome, 0.2)
        for n_ctx, outcome in ((8192, Outcome.COMPLETED), (16384, Outcome.OUT_OF_MEMORY), (12288, Outcome.COMPLETED))
    )
    with Store.open() as store:
        put_search(store, MaxctxResult(max_n_ctx=12288, first_fail_n_ctx=12544, probes=probes))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


def test_a_page_has_every_run_and_asks_for_nothing(ggbench: Run, filled: None, target: Path) -> None:
    path = target / "report.html"
    ran = ggbench("report", "1", "3", "4", "5", "-o", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"saved {path}\n"
    text = path.read_text()
    page = _Page(text)
    words = " ".join(page.texts)
    for number in (1, 3, 4, 5):
        assert ("id", f"run-{number}") in page.attributes
    assert words.count("ggbench decode twin:qwen1.5-0.5b q8_0 -n 3000") == 2
    assert "q4_k_m" in words and "★ better" in words
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "srcset", "action", "background")]
    assert all((value or "").startswith("#") for name, value in page.attributes if name == "href")
    assert "default-src 'none'" in text
    specs = json.loads(page.scripts[0])
    assert len(specs) == len([value for name, value in page.attributes if name == "data-spec"])


def test_the_verdict_is_first_and_a_quant_has_one_colour(ggbench: Run, target: Path) -> None:
    with Store.open() as store:
        for quant, b_ms in (("q4_k_m", 10.0), ("q8_0", 17.0), ("q4_k_m", 10.0)):
            put_run(store, start(quant=quant), b_ms, n_gen=1000)
    assert ggbench("report", "1", "2", "3", "-o", str(target / "x.html")).code == 0
    text = (target / "x.html").read_text()
    swatches = re.findall(r'<span class="run" style="color:(.*?)">(.)</span>', text)
    assert swatches == [("var(--run0)", "1"), ("var(--run1)", "2"), ("var(--run0)", "3")]
    (verdict,) = re.findall(r'<p class="answer">(.*?)</p>', text)
    assert re.match(r"No verdict, \d of 4 turns: q8_0 has 0\.", verdict)


def test_names_are_text_wherever_they_are(ggbench: Run, target: Path) -> None:
    """A model's name ends no script and makes no element in page or data; a spreadsheet has no formula."""
    with Store.open() as store:
        for model, quant in ((HOSTILE, "q4_k_m"), (HOSTILE, "q8_0"), (FORMULA, HOSTILE), ("| a `b` |", "q8_0")):
            put_run(store, start(model, quant, command=f"ggbench decode {model}"), n_gen=300)
    assert ggbench("report", "1", "2", "3", "4", "-o", str(target / "x.html")).code == 0
    text = (target / "x.html").read_text()
    page = _Page(text)
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "</script><script>window.hacked=1" in " ".join(page.texts)
    json.loads(page.scripts[0])
    assert ggbench("report", "3", "-o", str(target / "x.csv")).code == 0
    row = next(csv.DictReader(io.StringIO((target / "x.csv").read_text())))
    assert row["model"] == f"'{FORMULA}"


def test_a_report_never_replaces_a_file_unasked(ggbench: Run, filled: None, target: Path) -> None:
    path = target / "x.csv"
    path.write_text("mine")
    ran = ggbench("report", "1", "-o", str(path))
    assert ran.code == 2
    assert "x.csv exists already" in ran.err
    assert "--force overwrites it" in ran.err
    assert path.read_text() == "mine"
    assert ggbench("report", "1", "-o", str(path), "--force").code == 0
    assert path.read_text().startswith("run_id,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.html"], "Missing argument"),
        (["1", "-o", "x.pdf"], "'.pdf' is not a report format"),
        (["1", "-o", "x.svg"], "'.svg' is not a report format"),
        (["1", "-o", "no/folder/x.html"], "cannot save in no/folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_one_error(
    ggbench: Run, filled: None, target: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(target)
    ran = ggbench("report", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert "Hint: " in ran.err
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("ending", ["html", "csv"])
def test_paths_are_left_out_when_asked_for(ggbench: Run, target: Path, ending: str) -> None:
    file = "/home/mallory/secret/x-q4_k_m.gguf"
    head = start(file, command=f"ggbench decode {file} -n 300")
    subject = replace(head.subject, file=file, source="file")
    head = replace(head, subject=subject, environment=machines.ENVIRONMENT)
    with Store.open() as store:
        put_run(store, head, n_gen=300)
    report = target / f"x.{ending}"
    assert ggbench("report", "1", "-o", str(report)).code == 0
    assert "mallory" in report.read_text()
    assert ggbench("report", "1", "-o", str(report), "--without-paths", "--force").code == 0
    text = report.read_text()
    assert not [word for word in ("mallory", "secret", "/home", "GPU-1") if word in text]
    assert "x-q4_k_m.gguf" in text or ending == "csv"


def test_a_limit_of_address_space_is_named(filled: None, target: Path) -> None:
    """V8 would crash the process with its own stack trace."""
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (8 << 30, 8 << 30))
    words = [sys.executable, "-P", "-m", "ggbench", "report", "1", "-o", str(target / "r.html")]
    ran = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "but the limit is 8.00 GiB" in ran.stderr and "ulimit -v unlimited" in ran.stderr
    assert list(target.iterdir()) == []


def test_two_files_are_side_by_side_whatever_their_names_are(ggbench: Run, target: Path) -> None:
    with Store.open() as store:
        put_run(store, start("twin:one", "q4_k_m"), n_gen=300)
        put_run(store, start("/m/other.gguf", "q4_k_m"), 17.0, n_gen=300)
    assert ggbench("report", "1", "2", "-o", str(target / "x.html")).code == 0
    text = (target / "x.html").read_text()
    assert re.search(r'<p class="answer">No verdict, one run each: .* 0\.\d+ times ', text)
    assert ">b / a<" in text
    assert ggbench("report", "1", "-o", str(target / "y.html")).code == 0
    assert "1 run, written" in (target / "y.html").read_text()


def test_servers_whose_paths_are_left_out_stay_apart(ggbench: Run, target: Path) -> None:
    with Store.open() as store:
        for turn in range(4):
            setup = LlamaServerConfig(command=f"/{'ab'[turn % 2]}/llama-server")
            put_run(store, replace(start(), setup=setup), n_gen=300)
    report = target / "x.html"
    assert ggbench("report", "1", "2", "3", "4", "-o", str(report), "--without-paths").code == 0
    assert ">b / a<" in report.read_text()
