"""`planted:<name>`: the shape of a small model, with no file at all."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig, config_type
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.hub.access import HubAccess
from ggbench.models.reference import ModelRef
from ggbench.models.sources import ModelSource, OnProgress
from ggbench.models.targets import Target

_SHAPE = Hyperparameters(
    architecture="qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=4, n_ff=512, n_vocab=1024, n_ctx_train=4096
)


class PlantedModel(ModelSource, frozen=True):
    name: str
    quant: str

    def header(self) -> ModelFile:
        return build_model(_SHAPE, self.name)

    def setup(self, given: EngineConfig) -> EngineConfig:
        kind = config_type("planted")
        return replace(given if isinstance(given, kind) else kind(), quant=self.quant)  # type: ignore[type-var]

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        return self.header()


def parse(scheme: str, rest: str) -> ModelRef:
    name, _, quant = rest.partition(":")
    return ModelRef("own", name, (quant,) if quant else (), engine="planted", label=f"{scheme}:{name}")


def targets(ref: ModelRef, hub: HubAccess | None) -> tuple[Target, ...]:
    return tuple(
        Target(ref.label, quant, "twin", None, source=PlantedModel(ref.name, quant)) for quant in ref.quants or ("p1",)
    )
