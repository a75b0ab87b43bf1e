"""The models of a server."""

from __future__ import annotations

import re

from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.http.endpoint import EndpointConfig
from ggbench.engines.http.messages import OfferedModel
from ggbench.errors import UnknownName, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import canonical_quant, known_quants, quant_from_words, quant_label
from ggbench.models.reference import ModelRef
from ggbench.models.sources import ModelSource
from ggbench.models.subject import Subject

_CLAIMED = re.compile(r"-(awq|gptq-int[348]|gptq|fp8)(?=$|-)", re.IGNORECASE)
"""Quant in the names of repos for vLLM: `Qwen2.5-7B-Instruct-GPTQ-Int4`."""

_TIMEOUT_S = 20.0
"""Default of the most that the list of models takes."""


class ServedModel(ModelSource):
    offered: OfferedModel
    config: EndpointConfig

    @property
    def words(self) -> tuple[str, ...]:
        return self.config.base_url, self.config.model

    def header(self) -> ModelFile:
        raise Unsupported("a server does not show the header of its model")

    def setup(self, given: EngineConfig) -> EngineConfig:
        return self.config

    @property
    def subject(self) -> Subject:
        """The subject of its runs; its quant is `unknown` if neither the server nor the model's name states it.

        BPW is computed from the bytes of the tensors, which some servers report; never from a name.
        """
        offered = self.offered
        quant, is_from_name = self._quant
        bpw = offered.tensor_bytes * 8 / offered.n_params if offered.tensor_bytes and offered.n_params else None
        return Subject(
            model=offered.name,
            quant=quant or "unknown",
            source="endpoint",
            file_bytes=offered.file_bytes,
            n_params=offered.n_params,
            bpw=bpw,
            weight_bytes=offered.tensor_bytes,
            is_quant_from_name=is_from_name,
            n_ctx_train=offered.n_ctx_train,
            architecture=offered.architecture,
        )

    @property
    def _quant(self) -> tuple[str, bool]:
        """The quant, empty if unknown, and whether it comes from the model's name."""
        stated = self.offered.quant or ""
        if stated:
            canonical = quant_from_words(stated) or canonical_quant(stated)
            return (canonical if canonical in known_quants() else stated.lower()), False
        name = self.offered.name.rpartition("/")[2]
        claimed = _CLAIMED.search(name)
        named = claimed[1].lower() if claimed else quant_label(name)
        return named or "", named is not None


def served_models(ref: ModelRef, api_key_env: str, timeout_s: float | None) -> tuple[ServedModel, ...]:
    """Get the server's models, and return those named as quants, in any case, or all.

    Raises UnknownName for a name that it does not have, UsageError if it has no models, and like `Server`.
    """
    from ggbench.engines.http.client import Client
    from ggbench.engines.http.server import Server

    setup, most_s = EndpointConfig(ref.name, api_key_env=api_key_env), timeout_s or _TIMEOUT_S
    with Server(setup.address, client=Client(setup.address, most_s, most_s)) as server:
        models = server.info.models
    if not models:
        raise UsageError(f"{ref.name} offers no model", "load one in the server first")
    by_name = {each.name.lower(): each for each in reversed(models)} | {each.name: each for each in models}
    chosen = []
    for name in ref.quants:
        found = by_name.get(name) or by_name.get(name.lower())
        if found is None:
            raise UnknownName("model on this server", name, [each.name for each in models])
        chosen.append(found)
    return tuple(ServedModel(each, replace(setup, model=each.name)) for each in chosen or models)
