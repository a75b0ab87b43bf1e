"""The subject of a run: one quant of one model."""

from __future__ import annotations

from ggbench.record import Record


class Subject(Record, kw_only=True):
    """One quant of one model, as described by its header."""

    model: str
    """MODEL as typed by the user."""
    quant: str
    source: str
    """Where the weights come from: `file`, `hub`, `twin` (true shape, no trained weights), `catalog`, `endpoint`."""
    file: str = ""
    """Absolute path of the file or its first shard; empty without one."""
    file_bytes: int | None = None
    """Over all shards."""
    header_sha256: str = ""
    """`ModelFile.header_sha256`; empty if unknown."""
    shape_key: str = ""
    """`ModelFile.shape_key`, equal for files of the same speed; empty if unknown, as in runs of earlier versions."""
    n_params: int | None = None
    bpw: float | None = None
    """Tensor bytes x 8 / parameters."""
    weight_bytes: int | None = None
    """Bytes of all tensors, each counted once."""
    kv_bytes_per_token: int | None = None
    """K and V cache together, with their types; None if the header does not determine it."""
    is_quant_from_name: bool = False
    """Whether the quant of a server's model is known only from the model's name."""
    n_ctx_train: int | None = None
    architecture: str | None = None
    """The header's name, `llama`; None if unknown, as in runs of earlier versions, and likewise for the next two."""
    n_layer: int | None = None
    n_embd: int | None = None
    breaks: tuple[int, ...] = ()
    """Positions beyond which some layers read no more: their window, or the budget of sparse attention; empty if there
    are none, or if that is unknown."""

    def has_other_shape(self, other: Subject) -> bool | None:
        """Return whether the other is a different model by architecture or shape; None if unknown for either."""
        pairs = [
            (getattr(self, name), getattr(other, name))
            for name in ("architecture", "n_layer", "n_embd", "n_params")
        ]
        differ = [mine != theirs for mine, theirs in pairs if mine is not None and theirs is not None]
        return any(differ) if differ else None
