"""The models that a server offers, as what can be measured."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ggbench.engines.server.config import Address, ClockChoice, EndpointConfig
from ggbench.engines.server.contract import OfferedModel
from ggbench.errors import UnknownName, UsageError
from ggbench.fields import config_options
from ggbench.gguf_file.quants import canonical_quant, known_quants, quant_from_file_name, quant_from_words
from ggbench.models.reference import ModelRef
from ggbench.models.subject import Subject

_UNKNOWN_QUANT = "unknown"
_CLAIMED = re.compile(r"-(awq|gptq-int[348]|gptq|fp8)(?=$|-)", re.IGNORECASE)
"""How repos for vLLM and TGI are named: `Qwen2.5-7B-Instruct-GPTQ-Int4`."""


class ServerOptions(msgspec.Struct, frozen=True):
    """How a person wants a server to be asked."""

    api_key_env: str = ""
    """Name of the environment variable with the API key; empty sends none."""
    clock: ClockChoice = "auto"
    timeout_s: float = 20.0
    """Longest silence of a server that only lists its models."""

    @property
    def given(self) -> tuple[str, ...]:
        """The options that are not the default."""
        return tuple(config_options(EndpointConfig(clock=self.clock, api_key_env=self.api_key_env)))


class ServedModel(msgspec.Struct, frozen=True):
    """One model of a server."""

    offered: OfferedModel
    setup: EndpointConfig

    @property
    def name(self) -> str:
        """As the server offers it."""
        return self.offered.name

    @property
    def quant(self) -> str:
        """As the server says, else as the model's name claims, else `unknown`."""
        return self._quant[0] or _UNKNOWN_QUANT

    @property
    def subject(self) -> Subject:
        """What a run of it measures. BPW is of the tensors' bytes, which some servers report; never of a name."""
        offered = self.offered
        quant, is_from_name = self._quant
        bpw = None
        if offered.tensor_bytes and offered.n_params:
            bpw = offered.tensor_bytes * 8 / offered.n_params
        return Subject(
            model=offered.name,
            quant=quant or _UNKNOWN_QUANT,
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
        """The quant, empty where nothing says it, and whether only the name does."""
        stated = self.offered.quant or ""
        if stated:
            canonical = quant_from_words(stated) or canonical_quant(stated)
            return (canonical if canonical in known_quants() else stated.lower()), False
        name = self.name.rpartition("/")[2]
        claimed = _CLAIMED.search(name)
        named = claimed[1].lower() if claimed else quant_from_file_name(name)
        return named or "", named is not None


def served_models(ref: ModelRef, options: ServerOptions) -> tuple[ServedModel, ...]:
    """Return the models of the names given as quants, in any case, or all that the server offers; asks the server.

    Raises UnknownName for a name that it does not offer, UsageError where it offers none, and as `Server` does.
    """
    from ggbench.engines.server.server import Server

    with Server(Address.parse(ref.name, options.api_key_env or None), timeout_s=options.timeout_s) as server:
        models = server.info.models
    if not models:
        raise UsageError(f"{ref.name} offers no model", "load one in the server first")
    setup = EndpointConfig(ref.name, clock=options.clock, api_key_env=options.api_key_env)
    chosen = [_by_name(name, models) for name in ref.quants] if ref.quants else models
    return tuple(ServedModel(each, replace(setup, model=each.name)) for each in chosen)


def _by_name(name: str, models: Sequence[OfferedModel]) -> OfferedModel:
    exact = [each for each in models if each.name == name]
    found = exact or [each for each in models if each.name.lower() == name.lower()]
    if not found:
        raise UnknownName("model of this server", name, [each.name for each in models])
    return found[0]
