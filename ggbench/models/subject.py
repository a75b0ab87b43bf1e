"""What a run measures: one quant of one model."""

from __future__ import annotations

import msgspec


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
