"""Too little memory at each stage of a measurement, and a disk that is full at each writer."""

import resource
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from ggbench import paths
from ggbench.engines.contract import Speculate
from ggbench.engines.endings import Completed, OutOfMemory
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess
from ggbench.engines.protocol import Log
from tests.hardening.commands import LIMIT, finish, reading_commands, started, stopped_commands
from tests.hardening.served import served_hub
from tests.hardening.trials import LIMIT_S, Trials

_MIB = 1 << 20
_MEMORY_MIB = (1, 64, 200, 260, 300, 330, 360, 400, 500, 700)
"""From less than a worker needs to start, past what it takes to load a small model, to enough for its context."""
_PARENT_MIB = (150, 210, 300, 600)
_ONE_THREAD = ("-t", "1")
"""At a load of 11, two threads that wait for each other decoded 10 tokens/s, and one 100."""
FILE_BYTES = (0, 4096, 65_536, 1_000_000)
"""The largest size that a file may reach: the kernel refuses every write beyond it, as a quota does."""
_REPO = "org/full-GGUF"


def out_of_memory(model: Path, n_limits: int | None = None) -> Trials:
    """Measure under limits that end at start, load, context and prompt, and in the command's own process."""
    row = Trials("out of memory at each stage")
    measured = {name: words for name, words in stopped_commands(model).items() if LIMIT in words}
    for mib in _MEMORY_MIB[:: 1 if n_limits is None else len(_MEMORY_MIB) // n_limits]:
        for name, words in measured.items():
            given = [{LIMIT: f"{mib}MiB", "3000": "300"}.get(word, word) for word in words]
            _limited(row, f"{name} in {mib} MiB", [*given, *_ONE_THREAD], None)
    readers = ["decode", str(model), "-n", "300", *_ONE_THREAD], ["inspect", str(model)], ["results"]
    for mib in _PARENT_MIB[:n_limits]:
        for words in readers:
            _limited(row, f"{words[0]} with {mib} MiB itself", words, partial(_limit_memory, mib * _MIB))
    return row


def drafts_out_of_memory(model: Path, draft: Path, n_limits: int) -> Trials:
    """Load a target and its draft into one worker under limits from nothing to what both need, in even steps."""
    row = Trials("out of memory with a target and its draft")
    enough = _MIB
    while enough < 1 << 40 and row.attempt(f"a pair in {enough} B", partial(_load_pair, model, draft, enough)):
        enough *= 2
    ends = Counter(
        str(row.attempt(f"a pair in {limit} B", partial(_load_pair, model, draft, limit)) or "a step")
        for limit in range(1, enough, max(1, enough // n_limits))
    )
    row.said = [f"{n} ended in {where}" for where, n in ends.items()]
    return row


def _load_pair(model: Path, draft: Path, limit_bytes: int) -> str:
    """Return where the memory ended; empty if a step was computed. Raises RuntimeError for any other end."""
    setup = LlamaConfig(n_ctx=4096, n_ubatch=64, threads=1, n_outputs_max=9, memory_limit_bytes=limit_bytes, mmap=False)
    load = LoadModel(str(model), setup, draft=str(draft))
    with closing(WorkerProcess(timeout_s=LIMIT_S)) as worker:
        for what, request in (
            ("the load", load),
            ("the contexts", MakeContext(setup, setup.for_draft())),
            ("the steps", Speculate(8, (3,), 1)),
        ):
            *items, last = worker.call(request)
            if isinstance(last, OutOfMemory):
                is_drafts = any(isinstance(item, Log) and item.of_draft for item in items)
                return f"{what}{' of the draft' if is_drafts else ''}"
            if not isinstance(last, Completed):
                raise RuntimeError(f"{what} ended as {last}")
    return ""


def full_disk(folder: Path, model: Path, sizes: Sequence[int] = FILE_BYTES) -> Trials:
    """Run every command that writes where no file may grow beyond a size, and print to a device that is full."""
    row, old = Trials("disk full at each writer"), b"what the user had"
    folder.mkdir(parents=True, exist_ok=True)
    before = paths.results_file().read_bytes()
    with served_hub() as (hub, _):
        hub.add_repo(_REPO, {"full-q8_0.gguf": bytes(3 * _MIB)})
        for size in sizes:
            target = folder / f"out-{size}"
            writers = [
                ["twin", "qwen1.5-0.5b", "q4_0", "--layers", "2", "-o", str(target)],
                ["report", "1", "-o", str(target.with_suffix(".html")), "--force"],
                ["pick", str(model), "-c", "512", "--as", "preset", "-o", str(target.with_suffix(".ini")), "--force"],
                ["export", "1", "--format", "json", "-o", str(target.with_suffix(".json")), "--force"],
                ["pull", f"hf:{_REPO}", "q8_0"],
                ["import", str(Path(__file__).parent.parent / "data" / "peers" / "llama-bench.json")],
                ["models", str(model.parent)],
                ["decode", str(model), "-n", "300"],
            ]
            for words in writers:
                label = f"{words[0]} with files of at most {size} B"
                if "--force" in words:
                    Path(words[-2]).write_bytes(old)
                code = _limited(row, label, words, partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size)))
                if code and "--force" in words and Path(words[-2]).read_bytes() != old:
                    row.lost_bytes += len(old)
                    row.fault(f"{label}: the file that it was to replace was changed")
                for path in folder.rglob("*"):
                    if path.is_file() and path.suffix != ".incomplete" and path.stat().st_size == size and size:
                        row.unverified_bytes += size
                        row.fault(f"{label}: {path.name} was cut there and has its name")
        for name, words in reading_commands().items():
            row.tried += 1
            given = [str(model) if word == "MODEL" else word for word in words]
            with Path("/dev/full").open("w") as full, started(row, name, [name, *given], stdout=full) as process:
                _, err = process.communicate(timeout=120)
            if "Traceback" in err or "unexpected" in err or process.returncode == 0:
                row.tracebacks += 1
                row.fault(f"{name} > /dev/full: exit code {process.returncode}, {err[-200:]}")
    if len(paths.results_file().read_bytes()) < len(before):
        row.lost_bytes += len(before)
        row.fault("the results file is smaller than before")
    return row


def _limited(row: Trials, label: str, words: Sequence[str], limit: Callable[[], None] | None) -> int | None:
    with started(row, label, words, preexec_fn=limit) as process:
        finish(row, label, process)
    return process.returncode


def _limit_memory(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
