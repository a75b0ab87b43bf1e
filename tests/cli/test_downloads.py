"""What is written about a download while it goes on, by a clock that the test moves."""

from ggbench.commands.downloads import DownloadNotices
from ggbench.hub.download import FileProgress
from ggbench.hub.repo_records import RepoFile


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stall_is_reported_once() -> None:
    clock, said = Clock(), list[str]()
    file = RepoFile("m.gguf", 100, None, "e" * 40)

    def after(seconds: float, arrival: FileProgress) -> list[str]:
        said.clear()
        for _ in range(round(seconds)):
            clock.now += 1
            notices.update([arrival])
        return list(said)

    notices = DownloadNotices(said.append, clock)
    assert after(14, FileProgress(file, 10, kept_bytes=10)) == ["continues at 10 B"]
    assert after(60, FileProgress(file, 10, kept_bytes=10)) == ["no data for 15 s; trying again"]
    assert after(14, FileProgress(file, 20, moved_bytes=10, kept_bytes=10)) == []
    assert after(60, FileProgress(file, 20, moved_bytes=10, kept_bytes=10)) == ["no data for 15 s; trying again"]
    assert after(60, FileProgress(file, 100, moved_bytes=90, kept_bytes=10)) == []
    notices = DownloadNotices(said.append, clock)
    assert after(60, FileProgress(file, 0, has_copy=True)) == ["copying from the cache"]
