"""Twins on disk: their bytes against the gguf package, and what is left behind when writing fails."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import gguf
import msgspec.structs
import numpy as np
import pytest

from ggbench.errors import DoesNotFit, UsageError
from ggbench.gguf_file import twin_writer
from ggbench.gguf_file.hyperparameters import Hyperparameters
from ggbench.gguf_file.model_file import TensorInfo
from ggbench.gguf_file.twin import plan_twin
from ggbench.gguf_file.twin_writer import write_twin

DENSE = Hyperparameters("qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=2, n_ff=768, n_vocab=512, n_ctx_train=2048)
MOE = msgspec.structs.replace(
    DENSE, architecture="qwen2moe", n_expert=8, n_expert_used=2, n_ff_expert=256, n_ff_shared_expert=512
)


@pytest.mark.parametrize(
    ("hyper", "quant"), [(DENSE, "q4_k_m"), (DENSE, "q2_k"), (DENSE, "f16"), (MOE, "q4_0"), (MOE, "iq4_xs")]
)
def test_gguf_reads_the_twin_as_it_was_planned(hyper: Hyperparameters, quant: str, tmp_path: Path) -> None:
    planned = plan_twin(hyper, [quant], name="tiny")[quant]
    write_twin(planned, tmp_path / "twin.gguf")
    reader = gguf.GGUFReader(tmp_path / "twin.gguf")
    found = [
        (tensor.name, tuple(tensor.shape.tolist()), tensor.tensor_type.name.lower(), int(tensor.n_bytes))
        for tensor in reader.tensors
    ]
    assert found == [
        (tensor.name, tensor.shape, tensor.type_name.lower(), tensor.n_bytes) for tensor in planned.tensors
    ]
    ends = [0]
    for tensor in reader.tensors:
        assert tensor.data_offset % 32 == 0 and tensor.data_offset >= ends[-1]
        ends.append(int(tensor.data_offset + tensor.n_bytes))
    assert ends[-1] <= (tmp_path / "twin.gguf").stat().st_size == planned.file_bytes


@pytest.mark.parametrize("hyper", [DENSE, MOE])
def test_dequantized_weights_look_like_an_initialized_model(hyper: Hyperparameters, tmp_path: Path) -> None:
    planned = plan_twin(hyper, ["q6_k"], name="tiny")["q6_k"]
    write_twin(planned, tmp_path / "twin.gguf")
    for tensor in gguf.GGUFReader(tmp_path / "twin.gguf").tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        assert np.isfinite(values).all()
        if tensor.name.endswith("norm.weight"):
            assert 0.8 < values.min() < values.max() < 1.2
        else:
            assert 0.015 < values.std() < 0.025
            assert abs(values.mean()) < 0.005
        if values.ndim > 1:
            rows = values.reshape(-1, values.shape[-1])
            assert len({row.tobytes() for row in rows}) == min(len(rows), 1021)


def test_a_twin_says_what_it_is(tmp_path: Path) -> None:
    write_twin(plan_twin(DENSE, ["q5_k_m"], name="tiny", source="catalog:tiny")["q5_k_m"], tmp_path / "twin.gguf")
    fields = gguf.GGUFReader(tmp_path / "twin.gguf").fields
    values = {key: fields[key].contents() for key in fields}
    assert values["ggbench.twin"] is True
    assert values["ggbench.twin.source"] == "catalog:tiny"
    assert values["general.name"] == "tiny"
    assert values["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q5_K_M
    assert values["general.quantization_version"] == gguf.GGML_QUANT_VERSION
    assert values["tokenizer.ggml.model"] == "none"


def test_too_small_a_disk_is_told_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_twin(DENSE, ["q8_0"], name="tiny")["q8_0"]
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(DoesNotFit, match=r"1\.00 KiB free.* needs .*MiB"):
        write_twin(planned, tmp_path / "twin.gguf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), DoesNotFit), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_writer_that_is_stopped_leaves_the_old_file_and_nothing_else(
    failure: BaseException, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_twin(DENSE, ["q8_0"], name="tiny")["q8_0"]
    path = tmp_path / "twin.gguf"
    path.write_bytes(b"before")
    whole = twin_writer._chunks

    def chunks(tensor: TensorInfo) -> Iterator[memoryview]:
        if tensor.name == "blk.1.attn_q.weight":
            raise failure
        return whole(tensor)

    monkeypatch.setattr(twin_writer, "_chunks", chunks)
    with pytest.raises(raised):
        write_twin(planned, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["twin.gguf"]
    assert path.read_bytes() == b"before"


def test_a_place_that_cannot_be_written_to_is_a_usage_error(tmp_path: Path) -> None:
    planned = plan_twin(DENSE, ["q8_0"], name="tiny")["q8_0"]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        write_twin(planned, tmp_path / "file" / "twin.gguf")
    with pytest.raises(UsageError, match="is a folder"):
        write_twin(planned, tmp_path)
