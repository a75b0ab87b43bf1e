"""JSON of models that are not measured: headers of GGUF files, the catalog, this disk, and repos of the Hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.engines.transformers.storage import Method
from ggbench.errors import GgbenchError, Unsupported
from ggbench.gguf_file.blueprint import count_params
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.quants import quant_label
from ggbench.models.checkpoints import planned_methods
from ggbench.show.documents import picked

if TYPE_CHECKING:
    from ggbench.hub.download import FileProgress
    from ggbench.hub.hf_cache import VerifiedFile
    from ggbench.hub.repo_records import RepoListing
    from ggbench.models.catalog import CatalogModel
    from ggbench.models.checkpoints import FoundCheckpoint
    from ggbench.models.disk import LocalModel
    from ggbench.models.local_files import FolderEntry
    from ggbench.models.repo_variants import FoundVariant

_REPO_FILE = "path n_bytes sha256"


def model_file_document(model_file: ModelFile, *, tensors: bool = False) -> dict[str, object]:
    """What a GGUF's header says; every tensor too where asked for. An array left out of the header is its length."""
    try:
        kv_bytes_per_token, no_kv_reason = model_file.kv_bytes_per_token(), None
    except Unsupported as error:
        kv_bytes_per_token, no_kv_reason = None, error.message
    metadata = {
        key: {"array_length": int(value)} if isinstance(value, ArrayLength) else value
        for key, value in model_file.metadata.items()
    }
    found: dict[str, object] = {
        "model": model_file.name,
        "quant": quant_label(model_file),
        "files": [str(path) for path in model_file.paths],
        "provenance": "twin" if model_file.is_twin else "file",
        **picked(model_file, "file_bytes missing_bytes"),
        "gguf_version": model_file.version,
        **picked(model_file, "big_endian header_sha256 architecture n_params bpw weight_bytes active_weight_bytes"),
        "kv_bytes_per_token": kv_bytes_per_token,
        "no_kv_reason": no_kv_reason,
        **picked(model_file, "n_layer n_embd n_head n_head_kv head_dim_k head_dim_v n_ff n_vocab n_ctx_train"),
        **picked(model_file, "n_expert n_expert_used sliding_window"),
        "n_windowed_layers": sum(state.window is not None for state in model_file.states),
        "state_bytes": None if no_kv_reason else sum(state.state_bytes for state in model_file.states),
        "n_tensors": len(model_file.tensors),
        "tensor_types": dict(Counter(tensor.type_name for tensor in model_file.tensors).most_common()),
        "unknown_types": model_file.unknown_types,
        "metadata": metadata,
    }
    return found | {"tensors": model_file.tensors} if tensors else found


def checkpoint_document(found: FoundCheckpoint, method: Method, *, tensors: bool = False) -> dict[str, object]:
    """What a checkpoint is when loaded by a method, with the names of a GGUF's document, and a row for each method."""
    checkpoint = found.checkpoint
    file = found.header(method)
    counted = model_file_document(file)
    del counted["gguf_version"], counted["big_endian"]
    document: dict[str, object] = {
        **counted,
        "model": checkpoint.name,
        "quant": method.name,
        "provenance": found.origin,
        "files": [str(shard.path) for shard in checkpoint.shards],
        "transformers_class": checkpoint.config.architecture,
        "tied_embeddings": checkpoint.layout.is_tied,
        "code_files": list(checkpoint.config.code_files),
        "unused_bytes": sum(tensor.n_bytes for tensor in checkpoint.unused()),
        "methods": [_method_document(found, method) for method in planned_methods(found)],
    }
    if tensors:
        document["tensors"] = [
            {**picked(tensor, "name shape"), "type_name": tensor.dtype, "n_bytes": tensor.n_bytes}
            for tensor in checkpoint.listed_tensors(method)
        ]
    return document


def _method_document(found: FoundCheckpoint, method: Method) -> dict[str, object]:
    """Size under one method; null with a reason where it cannot be counted."""
    try:
        file, reason = found.header(method), None
    except GgbenchError as error:
        file, reason = None, error.message
    return {"quant": method.name, **picked(file, "bpw weight_bytes active_weight_bytes"), "reason": reason}


def folder_entry_document(entry: FolderEntry) -> dict[str, object]:
    """One GGUF of a folder; `reason` is why it cannot be loaded."""
    variant, file = entry.variant, entry.file
    return {
        "model": variant.name,
        "quant": entry.quant,
        "files": [str(path) for path in variant.paths],
        "provenance": "twin" if file is not None and file.is_twin else "file",
        "file_bytes": variant.file_bytes,
        "n_shards": len(variant.files) + variant.n_missing,
        "n_missing": variant.n_missing,
        **picked(file, "missing_bytes architecture n_params bpw weight_bytes n_ctx_train"),
        "reason": entry.reason or None,
    }


def catalog_document(model: CatalogModel, twins: Sequence[str]) -> dict[str, object]:
    """A model of the catalog; `twins` are the quants whose twins are on this disk."""
    return {**asdict(model), "n_params": count_params(model.hyper), "twins": list(twins)}


def local_model_document(model: LocalModel) -> dict[str, object]:
    """A model on this disk; `words` go after the name of a command that measures, each an argument of its own."""
    return {
        **picked(model, "store name"),
        "model": model.model or None,
        "quant": model.quant,
        "words": model.arguments,
        "files": [str(path) for path in model.paths],
        "provenance": "twin" if model.is_twin else "file",
        **picked(model, "file_bytes n_missing architecture n_ctx_train"),
        "reason": model.reason or None,
    }


def verified_document(verified: VerifiedFile) -> dict[str, object]:
    """A cached file compared with the SHA-256 in its name."""
    return {"file": str(verified.path), **picked(verified, "sha256_expected sha256_found matches")}


def repo_document(
    listing: RepoListing, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int]
) -> dict[str, object]:
    """The fields of a repo's listing; `here` has the local files of what is whole on this disk, by the variant's name,
    and `here_bytes` what is there of any.
    """
    return {
        **picked(listing, "repo revision commit"),
        "listed_at": listing.listed_at or None,
        **picked(listing, "total_bytes n_other_files"),
        "rows": [
            {
                "model": variant.name,
                "quant": variant.quant,
                "file_bytes": variant.file_bytes,
                "repo_files": [picked(file, _REPO_FILE) for file in variant.files],
                "missing": list(variant.missing),
                "files": [str(path) for path in here.get(variant.name, ())],
                "here_bytes": here_bytes.get(variant.name, 0),
            }
            for variant in listing.variants
        ],
        "sidecars": [picked(file, _REPO_FILE) for file in listing.sidecars],
    }


def pulled_document(found: FoundVariant, pulled: Sequence[tuple[Path, FileProgress]]) -> dict[str, object]:
    """A variant that was downloaded: where each of its files is, and how it came there."""
    return {
        "model": found.repo,
        "quant": found.variant.quant,
        "commit": found.commit,
        "file_bytes": found.variant.file_bytes,
        "files": [
            {"path": str(path), **picked(arrival.file, "n_bytes sha256"), **picked(arrival, "outcome moved_bytes")}
            for path, arrival in pulled
        ],
    }
