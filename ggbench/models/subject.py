"""What a run measures, one quant of one model, and the command line that reproduces it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from ggbench.engines.contract import EngineConfig
from ggbench.fields import long_flag
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import exact_size

if TYPE_CHECKING:
    from ggbench.models.targets import Target


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One quant of one model, as its header describes it."""

    model: str
    """As the person named it."""
    quant: str
    source: str
    """Where the weights come from: `file`, `hub`, `twin` (true shape, no trained weights), `catalog`, `endpoint`."""
    file: str = ""
    """Absolute path of the file or its first shard; empty where there is none."""
    file_bytes: int | None = None
    """Over all shards."""
    header_sha256: str = ""
    """`ModelFile.header_sha256`; empty when unknown."""
    shape_key: str = ""
    """`ModelFile.shape_key`, equal for files of one speed; empty when unknown, as in an earlier ggbench's run."""
    n_params: int | None = None
    bpw: float | None = None
    """Tensor bytes x 8 / parameters."""
    weight_bytes: int | None = None
    """Bytes of all tensors, each once."""
    kv_bytes_per_token: int | None = None
    """Of both caches as they are typed; None where the KV is not counted from the header."""
    is_quant_from_name: bool = False
    """Whether the quant of a server's model is only what the model's name claims."""
    n_ctx_train: int | None = None
    architecture: str | None = None
    """As in the header, `llama`; None when unknown, as in a run that an earlier ggbench stored."""
    n_layer: int | None = None
    """As `architecture`."""
    n_embd: int | None = None
    """As `architecture`."""

    def has_other_shape(self, other: Subject) -> bool | None:
        """Return whether it is another model by architecture or shape; None where none of them is known of both."""
        shapes = zip(self._shape, other._shape, strict=True)
        differ = [mine != theirs for mine, theirs in shapes if mine is not None and theirs is not None]
        return any(differ) if differ else None

    @property
    def _shape(self) -> tuple[str | int | None, ...]:
        return self.architecture, self.n_layer, self.n_embd, self.n_params


def reproduce(command: str, words: tuple[str, ...], setup: EngineConfig, options: Mapping[str, object]) -> str:
    """One line for a shell: the command, the words for what it measures, and every option that is not the default."""
    line = ["ggbench", command, *words]
    for name, value in options.items():
        line += [f"-{name}" if len(name) == 1 else f"--{name}", *([] if value is True else [str(value)])]
    return shlex.join([*line, *setup_options(setup)])


def setup_options(setup: EngineConfig, *, without: Collection[str] = ()) -> list[str]:
    """The options of every field that is not the default and not said by MODEL and QUANT, `without` some."""
    words = []
    for field in msgspec.structs.fields(setup):  # type: ignore[arg-type]  # every setup is a dataclass
        value = getattr(setup, field.name)
        if value == field.default or field.name in setup.in_words or field.name in without:
            continue
        words.append(long_flag(field.name, field.default))
        if not isinstance(value, bool):
            words.append(_word(field.name, value))
    return words


def named(target: Target) -> tuple[str, ...]:
    """The words of a command line for a target, which mean it from any folder."""
    if target.own is not None:
        return target.own.words or target.named
    is_local = target.path is not None and target.provenance != "hub"
    return (str(target.path.absolute()),) if is_local and target.path else target.named


def stated_bandwidth(bandwidth: Bandwidth | None) -> dict[str, str]:
    """The option for a person's own figure; nothing without one."""
    return {} if bandwidth is None else {"bandwidth": f"{bandwidth.bytes_per_s / 1e9:.10g}GB/s"}


def _word(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(part if isinstance(part, str) else f"{part:g}" for part in value)
    return exact_size(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)
