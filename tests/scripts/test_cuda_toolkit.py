"""Finding what llama.cpp is built with for CUDA, in folders laid out as the installers lay them out."""

import os
from pathlib import Path

import pytest

from scripts import cuda_toolkit
from scripts.cuda_toolkit import CudaToolkit, find_toolkit

VERSION_LINE = "Cuda compilation tools, release 13.0, V13.0.88"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit with a compiler alone, as pip's packages make one; nothing of this machine's is found."""
    root = tmp_path / "cuda-13.0"
    make_file(root / "bin/nvcc", f"#!/bin/sh\necho '{VERSION_LINE}'\necho '#$ TOP={root}/bin/..' >&2\n")
    (root / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(cuda_toolkit, "_loaded_driver_library", lambda: None)
    monkeypatch.setattr(cuda_toolkit, "SYSTEM", tmp_path / "usr")
    return root


def make_file(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def find(*search_path: Path) -> CudaToolkit:
    """The toolkit that must be there."""
    toolkit = find_toolkit([str(folder) for folder in search_path])
    assert toolkit is not None
    return toolkit


def test_a_whole_toolkit_needs_no_words_to_cmake(root: Path, tmp_path: Path) -> None:
    make_file(root / "include/cublas_v2.h")
    make_file(root / "lib64/libcublas.so")
    make_file(root / "lib64/stubs/libcuda.so")
    make_packaged_cublas(tmp_path / "site-packages")

    toolkit = find(tmp_path / "site-packages")

    assert (toolkit.root, toolkit.version, toolkit.cublas) == (root, "13.0", None)
    assert not [word for word in toolkit.cmake_arguments("90-real") if "LIBRARY" in word]
    assert toolkit.library_folders == [str(root / "lib64")]
    assert toolkit.include_folders == []


def make_packaged_cublas(site_packages: Path, name: str = "cu13") -> Path:
    """Make libraries as pip's nvidia-cublas lays them out: with a version in their names, and no other."""
    folder = site_packages / "nvidia" / name
    make_file(folder / "include/cublas_v2.h")
    for library in ("libcublas.so.13", "libcublasLt.so.13", "libnvblas.so.13"):
        make_file(folder / "lib" / library)
    return folder


def test_a_distributions_cublas_is_left_to_cmake(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nvcc is a wrapper: the compiler itself says where its toolkit is, and the wrapper has no libraries."""
    make_file(tmp_path / "usr/include/cublas_v2.h")
    make_file(tmp_path / "usr/lib/x86_64-linux-gnu/libcublas.so")
    make_packaged_cublas(tmp_path / "site-packages")
    wrapper = make_file(tmp_path / "local/bin/nvcc", f'#!/bin/sh\nexec {root}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)

    toolkit = find(tmp_path / "site-packages")

    assert toolkit.cublas is None
    assert (toolkit.compiler, toolkit.root, toolkit.version) == (str(wrapper), root, "13.0")


@pytest.mark.parametrize("name", ["cu13", "cublas"])
def test_pips_cublas_is_named_to_cmake_the_compilers_and_the_loader(root: Path, tmp_path: Path, name: str) -> None:
    """Headers alone, as some packages have them, would end in a linker's error."""
    folder = make_packaged_cublas(tmp_path / "site-packages", name)
    make_file(tmp_path / "headers alone/nvidia/cu13/include/cublas_v2.h")

    toolkit = find(tmp_path / "nothing here", tmp_path / "headers alone", tmp_path / "site-packages")

    arguments = toolkit.cmake_arguments("90-real")
    assert {"-DCMAKE_CUDA_ARCHITECTURES=90-real", f"-DCMAKE_CUDA_COMPILER={root}/bin/nvcc"} <= set(arguments)
    assert f"-DCUDA_cublas_LIBRARY={folder}/lib/libcublas.so.13" in arguments
    assert f"-DCUDA_cublasLt_LIBRARY={folder}/lib/libcublasLt.so.13" in arguments
    assert toolkit.include_folders == [str(folder / "include")]
    assert toolkit.library_folders == [str(folder / "lib")]


def test_the_drivers_own_library_is_linked_where_the_toolkit_has_no_stand_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Path("/usr/lib/libcuda.so.580.10")
    monkeypatch.setattr(cuda_toolkit, "_loaded_driver_library", lambda: driver)
    assert f"-DCUDA_cuda_driver_LIBRARY={driver}" in find().cmake_arguments("90-real")

    make_file(root / "lib64/stubs/libcuda.so")
    (root / "bin/nvcc").write_text("#!/bin/sh\nexit 1\n")  # a compiler that says nothing is taken by its place
    toolkit = find()
    assert (toolkit.driver_library, toolkit.root, toolkit.version) == (None, root, "unknown")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert find_toolkit([]) is None
