"""A later llama-cpp-python: fields of llama.cpp's parameters removed, added and moved, and another interface of ggml.

With this folder in PYTHONPATH, each Python process has it in place of the installed one, whose library still computes:
parameters are copied by name between both. LATER_GONE names the fields that are gone, and the functions.
"""

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

GONE = os.environ.get("LATER_GONE", "defrag_thold").split()
NEW = ("moe_cache_size", ctypes.c_size_t)
INTERFACE = 3
CALLS = {
    "llama_model_params": ("llama_model_default_params", "llama_model_load_from_file"),
    "llama_context_params": ("llama_context_default_params", "llama_init_from_model"),
}
"""The function that returns each structure, and the one that takes it as its second argument."""


def change(lib: ModuleType) -> None:
    for name, (default, use) in CALLS.items():
        structure, make, call = (getattr(lib, each) for each in (name, default, use))
        fields = [field for field in reversed(structure._fields_) if field[0] not in GONE]
        later = type(name, (ctypes.Structure,), {"_fields_": [NEW, *fields]})
        names = [field for field, _ in fields]

        def copied(source: Any, target: Any, names: list[str] = names) -> Any:  # noqa: ANN401
            for field in names:
                setattr(target, field, getattr(source, field))
            return target

        setattr(lib, name, later)
        setattr(lib, default, lambda make=make, later=later, copied=copied: copied(make(), later()))
        setattr(lib, use, lambda of, params, make=make, call=call, copied=copied: call(of, copied(params, make())))
    for name in GONE:
        vars(lib).pop(name, None)
    lib._lib.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    ctypes.c_int.from_address(lib._lib.ggml_backend_reg_by_name(b"CPU")).value = INTERFACE


class Finder(importlib.abc.MetaPathFinder):
    """Changes llama_cpp's functions once they are imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:  # noqa: ANN401
        if name != "llama_cpp.llama_cpp":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
