"""Options of the memory that is planned for, and what becomes of them: a card by its name, a size, or this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ggbench.commands.options import as_record, memory_option, projector_option
from ggbench.errors import UsageError
from ggbench.runs.options import SIZE_OR_NONE

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.sizing.plan_record import Budget


class BudgetOptions(msgspec.Struct, frozen=True):
    """What a person gave, as typed."""

    gpu: str | None = None
    vram: str | None = None
    reserve: str | None = None
    bandwidth: str | None = None
    mmproj: Path | None = None

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """Names and values, for the line that reproduces what they were given for."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return tuple((name, str(value)) for name, value in values if value is not None)

    @property
    def reserve_bytes(self) -> int | None:
        """Memory to leave free. Raises UsageError."""
        return None if self.reserve is None else SIZE_OR_NONE.read(self.reserve)

    def budget(self, setup: LlamaConfig, *, measures: bool = True) -> Budget:
        """Return the memory; `measures` lets the bandwidth of main memory be measured the first time.

        Raises UsageError and UnknownName as `sizing.budget` does, and for several GPUs; BadFile for a projector that is
        none.
        """
        from ggbench.gguf_file.header import read_projector

        budget = self._whole(setup, measures=measures)
        if self.mmproj is None:
            return budget
        return replace(budget, mmproj=str(self.mmproj), mmproj_bytes=read_projector(self.mmproj).weight_bytes)

    def _whole(self, setup: LlamaConfig, *, measures: bool) -> Budget:
        """The memory without regard to a projector."""
        from ggbench.machine.host import default_threads
        from ggbench.sizing.budget import given_budget, machine_budget
        from ggbench.stats.decode_timing import Bandwidth
        from ggbench.units import parse_bandwidth, parse_size

        if setup.rpc_servers and setup.n_gpu_layers:
            return self._of_devices(setup)
        if setup.tensor_split:
            raise UsageError("a plan counts one GPU", "omit --tensor-split; --main-gpu says which one")
        reserve_bytes = self.reserve_bytes
        rate = None if self.bandwidth is None else Bandwidth(parse_bandwidth(self.bandwidth), "given")
        vram_bytes = None if self.vram is None else parse_size(self.vram)
        limit_bytes = setup.memory_limit_bytes
        if self.gpu is not None or vram_bytes is not None:
            return given_budget(
                gpu=self.gpu,
                vram_bytes=vram_bytes,
                reserve_bytes=reserve_bytes,
                bandwidth=rate,
                limit_bytes=limit_bytes,
            )
        return machine_budget(
            n_gpu_layers=setup.n_gpu_layers,
            main_gpu=setup.main_gpu,
            threads=default_threads(),  # the memory's bandwidth is all that its processors can read, as for a run
            reserve_bytes=reserve_bytes,
            bandwidth=rate,
            limit_bytes=limit_bytes,
            measures=measures,
        )

    def _of_devices(self, setup: LlamaConfig) -> Budget:
        """The memory of RPC servers and of this machine's GPUs. Raises UsageError and NetworkError."""
        from ggbench.commands.rpc_options import check_rpc
        from ggbench.sizing.budget import devices_budget
        from ggbench.sizing.cluster import device_memories

        if self.gpu is not None or self.vram is not None:
            raise UsageError("--rpc plans for the devices of the servers", "omit --gpu and --vram")
        check_rpc(setup)
        return devices_budget(
            device_memories(setup), limit_bytes=setup.memory_limit_bytes, reserve_bytes=self.reserve_bytes
        )


def _record(**given: Any) -> BudgetOptions:  # noqa: ANN401 - the fields' own types
    path = given.pop("mmproj", None)
    return BudgetOptions(**given, mmproj=path and path.absolute())


budget_options = as_record(
    "memory",
    _record,
    BudgetOptions.__struct_fields__,
    memory_option("--gpu", "Plan for a known GPU, e.g. rtx-4090. Default: this machine.", metavar="NAME"),
    memory_option("--vram", "Plan for a GPU with this much memory, e.g. 24GiB.", metavar="SIZE"),
    memory_option(
        "--reserve", "Memory to leave free for driver and runtime; 0 for none. Default: printed.", metavar="SIZE"
    ),
    memory_option("--bandwidth", "Memory bandwidth for the limits, e.g. 1008GB/s.", metavar="RATE"),
    projector_option,
)
"""Add --gpu, --vram, --reserve, --bandwidth and --mmproj; the command gets them as `memory`, a BudgetOptions."""
