"""An engine of a worker process over workers that answer each type of request as a script says."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ggbench.engines import protocol
from ggbench.engines.contract import Engine, EngineConfig, Request, Source
from ggbench.engines.endings import Ending
from ggbench.engines.events import Event

EngineT = TypeVar("EngineT", bound=Engine)
Script = Mapping[type, tuple[protocol.Message | Ending, ...]]


class FakeTransport:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.closed = False

    def call(self, request: Request) -> Iterator[protocol.Message | Ending]:
        """Yield what the script has for a request of this type."""
        self.requests.append(request)
        yield from self.script[type(request)]

    def close(self) -> None:
        self.closed = True


class Bench(Generic[EngineT]):
    """An engine and every worker that it started; one after another takes the next script, the last again and again."""

    def __init__(
        self,
        make: Callable[[Callable[[], FakeTransport]], EngineT],
        source: Source,
        setup: EngineConfig,
        *scripts: Script,
    ) -> None:
        self.source, self.setup = source, setup
        self.workers: list[FakeTransport] = []

        def start() -> FakeTransport:
            self.workers.append(FakeTransport(scripts[min(len(self.workers), len(scripts) - 1)]))
            return self.workers[-1]

        self.engine = make(start)

    def open(self, setup: EngineConfig | None = None, **options: int) -> list[Event | Ending]:
        """Open the source with this setup, else its own; `options` are the engine's."""
        opened: Any = self.engine.open
        return list(opened(self.source, setup or self.setup, **options))

    @property
    def asked(self) -> list[list[type]]:
        return [[type(request) for request in worker.requests] for worker in self.workers]
