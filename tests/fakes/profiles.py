"""Device profiles, and a worker whose steps take what planted rates say."""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import DecodeAtDepth, Request
from ggbench.engines.endings import Completed, Ending, Failed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LoadModel, MakeContext
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.profile import MachineProfile, ProfiledDevice
from ggbench.sizing.placement import Placement
from ggbench.sizing.profiling import TYPES
from ggbench.sizing.work import works_by_place
from ggbench.stats.profile_speed import Attention, Rates, Timed, batch_ms, cache_key
from tests.fakes.engine import obey

N_BATCH = 128
FLASH = cache_key("f16", "f16", flash_attn=True)


def rates_of(n_batch: int, types: tuple[str, ...] = TYPES) -> Rates:
    """Rates that are all different, and slower for a larger batch."""
    slower = 1 + (n_batch - 1) / 4
    return Rates(
        step_ms=0.05 * slower,
        layer_ms=0.02 * slower,
        matrix_ms=0.01 * slower,
        expert_layer_ms=0.03 * slower,
        expert_share=1.5,
        gib_ms={name: Timed((60.0 + 5 * number) * slower, 0.01) for number, name in enumerate(types)},
        attention={
            cache_key(cache, cache, flash_attn=flash): tuple(
                Attention(head_dim, n_bytes, (0.1 * head_dim + 0.02 * n_bytes) * slower, 0.0)
                for head_dim in (64, 128, 256)
                for n_bytes in (0.01, 1e4)
            )
            for cache, flash in (("f16", True), ("q8_0", True), ("q4_0", True), ("f16", False))
        },
    )


def planted_profile(threads: int = 2) -> MachineProfile:
    host = ProfiledDevice(
        name="Planted CPU", memory_bytes=64 << 30, bandwidth_bytes_per_s=2e10,
        rates={n: rates_of(n) for n in (1, 2, 4, 8, N_BATCH)},
    )  # fmt: skip
    return MachineProfile(
        taken="2026-11-23", ggbench="0.1.0", llama_cpp="test", build_flags="", features="", n_cores=2, threads=threads,
        cache_bytes=32 << 20, drift=0.0, devices=(), host=host,
    )  # fmt: skip


class PlantedCosts:
    """Answers as a worker whose twins take what planted rates say; those in mxfp4 fail, as in an older llama.cpp."""

    def __call__(self, request: Request) -> Iterator[protocol.Message | Ending]:
        match request:
            case LoadModel():
                self._file = read_model_file(Path(request.path))
                if "mxfp4" in {tensor.type_name for tensor in self._file.tensors}:
                    yield Failed("load", "unknown type")
                    return
            case MakeContext(setup):
                self._setup = setup
            case DecodeAtDepth(n_depth, n_gen, n_batch):
                yield Steps(n_depth + 2, [self._ns(1, n_depth)] * n_gen, [])
                if n_batch:
                    yield PromptRead(n_batch, self._ns(n_batch, n_depth))
                yield Completed()
                return
        yield from obey(request)

    def _ns(self, n_batch: int, n: int) -> int:
        file, setup = self._file, self._setup
        rates = rates_of(n_batch)
        if file.n_embd < 512:  # matrices that small cost nothing
            rates = replace(rates, matrix_ms=0.0)
        work = works_by_place(file, Placement(file, setup, on_gpu=False), setup)[-1]
        cache = cache_key(setup.type_k, setup.type_v, flash_attn=setup.flash_attn != "off")
        found = batch_ms([(rates, work)], n + (n_batch / 2 if n_batch > 1 else 0), cache, has_outputs=n_batch == 1)
        assert found is not None
        return round(found.value * 1e6)
