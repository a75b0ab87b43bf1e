"""Files that a user names for an output: what is there before stays, is replaced as asked, or is written in place."""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.hardening.trials import Trials

_OLD = b"what the user had\n"
_LONG = "n" * 255
_WRITERS: Mapping[str, tuple[str, ...]] = {
    **{f"pick --as {form}": ("pick", "MODEL", "-c", "512", "--as", form)
       for form in ("sh", "preset", "llama-swap", "modelfile", "docker")},
    "report.html": ("report", "1"), "report.csv": ("report", "1"),
    **{f"export {form}": ("export", "1", "--format", form) for form in ("json", "csv", "llama-bench")},
}  # fmt: skip


def _file(path: Path) -> None:
    path.write_bytes(_OLD)


def _link(path: Path) -> None:
    (path.parent / "target").write_bytes(_OLD)
    path.symlink_to("target")


def _link_through(path: Path) -> None:
    (path.parent / "f").write_bytes(_OLD)
    path.symlink_to("f/x")


def _nothing(_path: Path) -> None:
    pass


_PLACES: Mapping[str, tuple[Callable[[Path], None], bool]] = {
    "nothing": (_nothing, True), "a file": (_file, False), "a link": (_link, False), "a FIFO": (os.mkfifo, True),
    "a broken link": (lambda path: path.symlink_to("target"), True),
    "a link in a circle": (lambda path: path.symlink_to(path.name), False), "a folder": (Path.mkdir, False),
    "a device that takes all": (lambda path: path.symlink_to("/dev/null"), True),
    "a device that is full": (lambda path: path.symlink_to("/dev/full"), False),
    "a folder of the kernel": (lambda path: path.symlink_to("/sys/kernel/ggbench"), False),
    "a link through a file": (_link_through, False),
}  # fmt: skip
"""What is at the name, and whether it is written without --force."""


def written_files(folder: Path, model: Path, writers: int | None = None) -> Trials:
    """Write with every command that has -o, over what may be at a name, with and without --force."""
    row = Trials("outputs over what is there")
    for writer, words in list(_WRITERS.items())[:writers]:
        given = [str(model) if word == "MODEL" else word for word in words]
        for place, (make, is_free) in _PLACES.items():
            for force in (False, True):
                folder.mkdir(parents=True)
                path = folder / f"out.{'csv' if writer.endswith('csv') else 'html'}"
                make(path)
                label = f"{writer} over {place}{' with --force' if force else ''}"
                before = path.lstat() if os.path.lexists(path) else None
                with _reader(path) as read:
                    ran = row.run(label, *given, "-o", str(path), *["--force"] * force)
                if ran is not None:
                    is_due = is_free or (force and place in ("a file", "a link"))
                    _judge(row, label, ran.code, path, before, read, is_due=is_due)
                shutil.rmtree(folder)
        for name in (_LONG, f"{_LONG}n", "\udcff", "a\nb", "", " ", "no/such", "$(touch owned)", "--force"):
            folder.mkdir(parents=True)
            row.run(f"{writer} to {name[:20]!r}", *given, f"-o{folder}/{name}{'.csv' * ('.' not in name)}")
            shutil.rmtree(folder)
    if Path("owned").exists():
        row.fault("a name was run by a shell")
    return row


def _judge(
    row: Trials, label: str, code: int, path: Path, before: os.stat_result | None, read: bytearray, *, is_due: bool
) -> None:
    """Count what was lost, and what was written or refused though it should not be."""
    if (code == 0) != is_due or code == 1:
        row.fault(f"{label}: exit code {code}")
    after = path.lstat() if os.path.lexists(path) else None
    if before is not None and (after is None or stat.S_IFMT(after.st_mode) != stat.S_IFMT(before.st_mode)):
        row.lost_bytes += 1
        row.fault(f"{label}: it is no longer what it was")
    for each in path.parent.iterdir():
        content = each.read_bytes() if each.is_file() else None
        if each.name not in (path.name, "target", "f"):
            row.fault(f"{label}: {each.name} stayed")
        elif content is not None and not is_due and content != _OLD:
            row.lost_bytes += len(_OLD)
            row.fault(f"{label}: {each.name} was changed")
        elif content is not None and is_due and (content == _OLD or not content):
            row.fault(f"{label}: {each.name} was not written")
    if path.is_fifo() and is_due and not read:
        row.lost_bytes += 1
        row.fault(f"{label}: nothing came through")


@contextmanager
def _reader(path: Path) -> Iterator[bytearray]:
    """Read what comes through a FIFO meanwhile."""
    read = bytearray()
    if not path.is_fifo():
        yield read
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    done = threading.Event()

    def take() -> None:
        while not done.wait(0.01):
            try:
                read.extend(os.read(descriptor, 1 << 20))
            except BlockingIOError:
                continue

    thread = threading.Thread(target=take)
    thread.start()
    yield read
    done.wait(0.05)
    done.set()
    thread.join()
    os.close(descriptor)
