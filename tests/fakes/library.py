"""A machine for the Library that is the same everywhere: its memory, its disk, and plans that nobody has to make."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions
from ggbench.decisions.pick.candidates import PickRequest
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.machine.records import GpuReading, MachineReading
from ggbench.models.catalog import Catalog, CatalogModel
from ggbench.models.disk import LocalModel
from ggbench.models.sources import ARTICLE_QUANTS
from ggbench.models.targets import FileToRun
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget, DeviceMemory, PlannedDevice, PlanRow
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.speed_curve import SessionTime, inverse
from ggbench.tui.host import machine_budgets
from ggbench.units import GIB
from tests.fakes.candidates import measured_loss
from tests.fakes.watched import WAIT_S

CARD = "NVIDIA GeForce RTX 4090"
BUDGET = Budget(
    (
        DeviceMemory(
            "CUDA0", 22 * GIB, GIB, CARD, bandwidth=Bandwidth(1008e9, "NVML"), process_bytes=GIB,
            memory_source="free, NVML", reserve_source="for CUDA",
        ),
    )
)  # fmt: skip


def budgets_of(budget: Budget) -> Callable[[BudgetOptions, LlamaConfig], Iterable[Budget]]:
    """Return what a service does on a machine of this budget; others are as they are described."""
    return lambda memory, setup: machine_budgets(memory, setup) if memory.is_described else [budget]


READING = MachineReading(
    at_ns=1, cpu_share=0.02, used_bytes=6 * GIB, total_bytes=64 * GIB,
    gpus=(GpuReading(0, CARD, used_bytes=2 * GIB, total_bytes=24 * GIB),),
)  # fmt: skip
_BITS = {
    "q8_0": 8.5, "q6_k": 6.57, "q5_k_m": 5.69, "q5_0": 5.54, "q4_k_m": 4.85, "q4_0": 4.55, "q3_k_m": 3.91, "q2_k": 2.96,
}  # fmt: skip
_SMALL = Hyperparameters(
    architecture="qwen2", n_layer=24, n_embd=1024, n_head=16, n_head_kv=16, n_ff=2816, n_vocab=151_936,
    n_ctx_train=32_768,
)  # fmt: skip
_N_PARAMS = {"small": 620_000_000, "vast": 72_300_000_000}
_KV_PER_TOKEN = {"small": 98_304, "vast": 2_621_440}

CATALOG = Catalog(
    (
        CatalogModel("small-0.6b", _SMALL, "shipped", "Small", "maker/small-gguf", "small-{quant}.gguf"),
        CatalogModel("vast-72b", _SMALL, "shipped", "Vast", "maker/large-gguf", quants=("q8_0", "q4_k_m", "q2_k")),
        CatalogModel("unpublished-1b", _SMALL, "user", "Unpublished"),
    )
)


def local(model: str, quant: str | None, store: str = "Hugging Face", **changes: object) -> LocalModel:
    path = Path(f"/models/{model.rpartition('/')[2].removeprefix('twin:')}-{quant}.gguf")
    known: dict[str, object] = {"name": model, "paths": (path,), "file_bytes": GIB}
    return LocalModel(store=store, model=model, quant=quant, **{**known, **changes})  # type: ignore[arg-type]


def plan_row(model: str, quant: str, budget: Budget, n_ctx: int | None = None) -> PlanRow:
    """A row with round figures: rising with the bits of the quant, the size of the model and the context."""
    size = "vast" if "72b" in model else "small"
    n_params, kv = _N_PARAMS[size], _KV_PER_TOKEN[size]
    weights = round(n_params * _BITS.get(quant, 4.0) / 8)
    n_ctx = n_ctx or 8192
    left = budget.usable_bytes - weights - kv * n_ctx - 300 * (1 << 20)
    longest = max(0, (left + kv * n_ctx) // kv // 256 * 256)
    rate = budget.bandwidth.bytes_per_s if budget.bandwidth else 20e9
    return PlanRow(
        model=model, quant=quant, provenance="catalog", file_bytes=weights + 6_000_000, n_params=n_params,
        bpw=_BITS.get(quant, 4.0), weight_bytes=weights, device_weight_bytes=weights, host_weight_bytes=0, n_ctx=n_ctx,
        n_ctx_train=32_768, kv_bytes=kv * n_ctx, device_kv_bytes=kv * n_ctx, kv_bytes_per_token=kv,
        compute_bytes=300 * (1 << 20), output_bytes=600_000, budget_bytes=budget.usable_bytes, left_bytes=left,
        needed_bytes=budget.usable_bytes - left, limit_tok_s=rate / (weights + kv * n_ctx),
        fits=left >= 0, planned_n_ctx=longest or None,
        devices=(
            PlannedDevice(
                device="CUDA0", n_layers=25, memory_bytes=budget.memory_bytes, weight_bytes=weights,
                kv_bytes=kv * n_ctx, compute_bytes=300 * (1 << 20), reserve_bytes=budget.reserve_bytes,
            ),
        ),
    )  # fmt: skip


def planned(name: str, row: PlanRow, **changes: Any) -> Candidate:  # noqa: ANN401 - of several types
    """Return a quant with its expected speed and the loss that its bits suggest, unpublished unless changed."""
    speed = None if row.expected is None else SessionTime("chat", 13, 6713, row.expected, inverse(row.expected, 300))
    loss = measured_loss(0.4 / 2 ** (row.bpw or 4.0))
    n_ctx = row.used_of(row.planned_n_ctx or 0)
    setup = LlamaConfig(n_ctx=row.n_ctx)
    known: dict[str, Any] = {
        "to_run": FileToRun(row.model, row.quant, repo="maker/small-gguf"), "speed": speed,
        "weights_loss": replace(loss, basis="typical"),
        "cache_loss": replace(measured_loss(0.0), basis="published"),
    }  # fmt: skip
    row = replace(row, setup=setup)
    return Candidate(row, "m", name, n_ctx, **{**known, **changes})


@dataclass
class FakePlanner:
    """Decides at once, or waits for `opened` before every quant of the models in `held`."""

    asked: list[tuple[str, tuple[str, ...], int | None]] = field(default_factory=list)
    requests: list[PickRequest] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    errors: dict[str, GgbenchError] = field(default_factory=dict)
    rows_of: dict[str, Sequence[Candidate]] = field(default_factory=dict)
    """Instead of those that are made up, by model."""
    best: Sequence[Candidate] = ()
    """The candidates among which the best for this machine are picked."""
    best_asked: list[Needs] = field(default_factory=list)
    n_forgotten: int = 0
    is_closed: bool = False

    def decide(
        self, model: str, quants: Sequence[str], request: PickRequest, store: Store | None
    ) -> Generator[tuple[Candidate, ...], None, Pick | None]:
        self.asked.append((model, tuple(quants), request.needs.given_n_ctx))
        self.requests.append(request)
        if model in self.held:
            self.reached.set()
            assert self.opened.wait(WAIT_S)
        if model in self.errors:
            raise self.errors[model]
        names = quants or ARTICLE_QUANTS
        found = self.rows_of.get(model) or [
            planned(quant, plan_row(model, quant, request.budget, request.needs.n_ctx)) for quant in names
        ]
        found = [replace(each, row=replace(each.row, setup=replace(request.setup, n_ctx=each.n_ctx))) for each in found]
        for each in found:
            yield (each,)
        return None if any(each.row.provenance == "endpoint" for each in found) else recommend(found, request.needs)

    def best_here(self, request: PickRequest, store: Store | None) -> Iterator[Pick | None]:
        """Yield the pick among `best`, or nothing without them."""
        self.best_asked.append(request.needs)
        if self.best:
            yield recommend(self.best, request.needs)

    def forget(self) -> None:
        self.n_forgotten += 1

    def close(self) -> None:
        self.is_closed = True
