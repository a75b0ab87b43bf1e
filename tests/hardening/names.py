"""Names that mean harm, through every output: of models, files, tensors, repos, runs, reasons and programs."""

import contextlib
import csv
import io
import json
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.endings import Outcome
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.runs.store.database import Store
from tests.fakes.measured import fill, put_failed, put_run, start
from tests.hardening.commands import options_of
from tests.hardening.served import kept_worker, served_hub
from tests.hardening.trials import Trials, ggbench

NAMES = {
    "terminal escapes": "a\x1b[2J\x1b]0;owned\x07\x9b31mb",
    "a line of its own": "a\r\nError: deleted\n\x85b\u2028c",
    "HTML": "<img src=x onerror=alert(1)><script>alert(2)</script>&lt;'\"",
    "HTML in a comment": "--><svg/onload=alert(3)><!--", "SQL": "x'); DROP TABLE llama_bench; --",
    "a formula": "=cmd|' /C calc'!A0", "a formula by a sign": "+1+1", "a formula by an at": "@SUM(1)",
    "a path": "../../../../etc/passwd", "an absolute path": "/etc/passwd", "10,000 characters": "n" * 10_000,
    "bidirectional marks": "abc\u202egpj.exe\u2066x\u200b", "Markdown": "a|b`c`[x](javascript:alert(4))**d**",
    "markup of rich": "[red]a[/red][link=file:///etc/passwd]b[/link][", "lone surrogates": "a\udcff\ud800b",
    "an option": "--help", "shell": "$(touch owned);`touch owned`&&x", "combining marks": "a" + "\u0301" * 300,
    "empty": "", "spaces": "  \t ",
}  # fmt: skip


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.harm: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            is_address = name in ("href", "src", "xlink:href") and (value or "").strip().lower().startswith(
                "javascript"
            )
            if name.startswith("on") or is_address:
                self.harm.append(f"<{tag} {name}={value}>")
        if tag in ("img", "iframe", "object", "embed", "base"):
            self.harm.append(f"<{tag}>")


def hostile_names(folder: Path, names: dict[str, str] | None = None) -> Trials:
    """Give every name to everything that has one, and look at what every command prints and writes."""
    row = Trials("hostile names through every output")
    for label, name in (names or NAMES).items():
        place = folder / f"case-{list(NAMES).index(label)}"
        place.mkdir(parents=True)
        before = set(folder.rglob("*"))
        with kept_worker():
            _files(row, label, name, place)
        _repos(row, label, name)
        _runs(row, label, name, place)
        for path in set(folder.rglob("*")) - before - set(place.rglob("*")):
            row.unverified_bytes += 1
            row.fault(f"{label}: {path} was written outside its folder")
    if Path("owned").exists():
        row.fault("a name was run by a shell")
    return row


def _files(row: Trials, label: str, name: str, place: Path) -> None:
    known = read_model_file(_header(place), allow_missing_data=True)
    text = name.encode("utf-8", "replace").decode()
    metadata = known.metadata | {"general.name": text, "general.description": text, "tokenizer.chat_template": text}
    tensors = [
        replace(tensor, name=text if number == 3 else tensor.name) for number, tensor in enumerate(known.tensors)
    ]
    content = encode_header(metadata, tensors).data
    models = place / "models"
    models.mkdir()
    path = models / "inside.gguf"
    with contextlib.suppress(OSError, ValueError):
        named = models / f"{name.replace('/', '_')[:200]}-q4_1.gguf"
        named.touch()
        path = named
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(known.file_bytes + (200 << 20))
    for words in (
        ["inspect", str(path)],
        ["inspect", str(path), "--why"],
        ["inspect", str(path), "--json"],
        ["models", str(models)],
        ["models", str(models), "--json"],
        ["limits", str(path), "--gpu", "rtx-4090"],
        ["pick", str(path), "-c", "512", "--as", "preset"],
    ):
        row.run(f"{label}, {' '.join(words[:1])} of a file", *words)
    if ran := row.run(f"{label}, the command to run a file", "pick", str(path), "-c", "512", "--as", "sh"):
        subprocess.run(["sh"], input=ran.out, text=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
    for command in ("decode", "plan", "pull", "inspect", "results"):
        row.run(f"{label} as MODEL of {command}", command, "--", _argument(name))


def _argument(name: str) -> str:
    """A name as a process is given it: bytes, of which those that are no UTF-8 come as lone surrogates."""
    return name.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def _repos(row: Trials, label: str, name: str) -> None:
    with served_hub() as (hub, _):
        hub.add_repo(
            "org/hostile-GGUF", {f"{name.encode('utf-8', 'replace').decode()}-q4_1.gguf": b"GGUF" + bytes(999)}
        )
        row.run(f"{label} in a repo", "models", "org/hostile-GGUF")
        row.run(f"{label} in a repo", "models", "org/hostile-GGUF", "--json")
        row.run(f"{label} in a repo", "pull", "org/hostile-GGUF", "q4_1", "--json")
        row.run(f"{label} as a search", "models", "--search", f"x{_argument(name)}")


def _runs(row: Trials, label: str, name: str, place: Path) -> None:
    with Store.open() as store:
        head = start(name, "q4_k_m", command=f"ggbench decode {name}")
        environment = head.environment
        assert environment is not None
        head = replace(
            head,
            subject=replace(head.subject, file=name, architecture=name),
            environment=replace(environment, cpu=name, os=name, llama_cpp=name, system_info=name),
        )
        run_id, failed = put_run(store, head, n_gen=600), put_failed(store, head, Outcome.FAILED, name)
    words = str(run_id)
    for command in (
        ["results"],
        ["results", "--json"],
        ["results", "show", words],
        ["results", "show", words, "--json"],
        ["results", "show", str(failed)],
        ["results", "--model", _argument(name)],
        ["compare", words, "1"],
        ["compare", words, "1", "--json"],
        ["export", words],
    ):
        row.run(f"{label}, {' '.join(command[:2])}", *command)
    for form in _formats():
        written = place / f"export-{form}"
        row.run(f"{label}, export --format {form}", "export", words, "--format", form, "-o", str(written))
        _look(row, f"{label}, export --format {form}", written, form)
    for ending in ("html", "csv"):
        written = place / f"report.{ending}"
        row.run(f"{label}, report.{ending}", "report", words, str(failed), "-o", str(written))
        for path in place.glob(f"report*.{ending}"):
            _look(row, f"{label}, {path.name}", path, ending)
    row.run(f"{label}, import", "import", str(place / "export-json"))
    with Store.open() as store:
        for run in store.list_runs():
            if run.run_id > 1:
                store.delete_run(run.run_id)


def _look(row: Trials, label: str, path: Path, form: str) -> None:
    """What a browser, a spreadsheet or a reader would make of a file."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="strict")
    for harm in _harm(text, form):
        row.unverified_bytes += len(harm)
        row.fault(f"{label}: {harm[:200]}")


def _harm(text: str, form: str) -> Iterator[str]:
    if any(character in text for character in "\x1b\x9b\x07\u202e") and form not in ("json", "llama-bench"):
        yield "a control character"
    match form:
        case "html":
            tags = _Tags()
            tags.feed(text)
            yield from tags.harm
        case "csv" | "row":
            for cells in csv.reader(io.StringIO(text)):
                yield from (f"a formula: {cell}" for cell in cells if cell[:1] in ("=", "+", "@") and len(cell) > 1)
        case "json" | "llama-bench":
            json.loads(text)


def _formats() -> tuple[str, ...]:
    from ggbench.cli.export import command

    assert "form" in options_of("export")
    (form,) = (parameter for parameter in command.params if parameter.name == "form")
    assert isinstance(form.type, click.Choice)
    return tuple(str(choice) for choice in form.type.choices)


def _header(place: Path) -> Path:
    content = sorted((Path(__file__).parent.parent / "data" / "headers").iterdir())[0].read_bytes()
    path = place / "source.gguf"
    path.write_bytes(content)
    return path


def store_with_runs() -> None:
    assert not paths.results_file().exists()
    fill(paths.results_file())
    assert ggbench("results").code == 0
