"""The subject of a run: one quant of one model, and what lists call it."""

from __future__ import annotations

from pathlib import PurePath

from ggbench.gguf_file import quants
from ggbench.record import Record
from ggbench.text import sanitize

_PATH_STARTS = ("/", "./", "../", "~")
_NAMELESS = {"", ".", "..", "~"}
"""Last parts of paths that are not file names."""
_FOLDERS_ABOVE = 2
"""A folder's models are its own files and those of its direct subfolders."""


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


def model_name(subject: Subject) -> str:
    """Return the model as it was given; a path becomes the file's name without the quant. Printable."""
    if not is_path(subject):
        return sanitize(subject.model)
    return sanitize(_name_in_folder(PurePath(subject.file or subject.model)) or subject.model)


def long_name(subject: Subject) -> str:
    """Return the name of a model of which another has the name: the path, or the file after the model. Printable."""
    if is_path(subject):
        return sanitize(subject.file or subject.model)
    return sanitize(f"{subject.model} {PurePath(subject.file).name}".rstrip())


def _name_in_folder(path: PurePath) -> str:
    """Return a file's name without quant and ending; the folder's name if the quant is all of it."""
    name = path.name if path.name not in _NAMELESS else path.parent.name
    short = quants.name_without_quant(name)
    if not short:
        return path.parent.name or name
    has_no_quant = short == quants.model_name(name) and quants.parse_shard_name(name) is None
    return name if has_no_quant else short


def is_path(subject: Subject) -> bool:
    """Return whether MODEL was a path: it looks like one, or the file is there."""
    model = subject.model
    if model.startswith(_PATH_STARTS) or model in _NAMELESS or model.lower().endswith(".gguf"):
        return True
    parts, file = PurePath(model).parts, PurePath(subject.file)
    if subject.source == "hub" or ":" in model or not parts:
        return False
    if len(parts) > 1 and subject.source == "file" and len(file.parts) == 1:
        return True  # imported without its folders
    return any(folder.parts[-len(parts) :] == parts for folder in (file, *file.parents[:_FOLDERS_ABOVE]))
