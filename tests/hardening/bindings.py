"""Bindings of llama.cpp other than those that ggbench was tested with: they lack something, lie, or fail at import."""

import itertools
import os
import random
from pathlib import Path
from unittest import mock

from tests.hardening.commands import finish, measuring, started
from tests.hardening.trials import Trials

_SITE = r"""
import importlib.abc, importlib.machinery, os, random, sys
way, seed = os.environ["GGBENCH_TEST_BINDING"].rsplit(" ", 1)
draw = random.Random(int(seed))
def functions(lib, of="llama_"):
    return sorted(n for n, f in vars(lib).items() if n.startswith(of) and callable(f) and not isinstance(f, type))
def change(lib):
    names = draw.sample(functions(lib), 3) if draw.randrange(2) else [draw.choice(functions(lib, of)) for of in USED]
    constants = sorted(n for n, v in vars(lib).items() if n.startswith(("LLAMA_", "GGML_")) and isinstance(v, int))
    structs = [lib.llama_model_params, lib.llama_context_params, lib.llama_batch]
    match way:
        case "functions are gone":
            for name in names:
                delattr(lib, name)
        case "a function answers 0":
            setattr(lib, names[0], lambda *given: 0)
        case "a function answers -1":
            setattr(lib, names[0], lambda *given: -1)
        case "a function answers None":
            setattr(lib, names[0], lambda *given: None)
        case "a function raises":
            def fail(*given):
                raise OSError(f"exception: access violation \x1b[2J {names[0]}")
            setattr(lib, names[0], fail)
        case "a function takes other arguments":
            setattr(lib, names[0], lambda: 0)
        case "constants are gone":
            for name in draw.sample(constants, 10):
                delattr(lib, name)
        case "constants have other values":
            for name in draw.sample(constants, 10):
                setattr(lib, name, draw.choice((-1, 0, 1, 2**31, "x")))
        case "a structure is gone":
            delattr(lib, draw.choice(structs).__name__)
        case "it prints":
            print("{}\n[]\n\x1b[2Jgarbage", flush=True)
            sys.stderr.write("garbage\xff\n" * 1000)
        case "it ends the process":
            sys.exit(7)
        case "its import fails":
            error = draw.choice((OSError, ImportError, RuntimeError, AttributeError, KeyError))
            raise error("libllama.so: \x1b[2J no\nsuch")
        case "its library is damaged":
            raise OSError("libllama.so: invalid ELF header")
USED = ("llama_model", "llama_init", "llama_decode", "llama_batch", "llama_get")
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "llama_cpp.llama_cpp":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def both(module):
            execute(module)
            change(module)
        spec.loader.exec_module = both
        return spec
sys.meta_path.insert(0, Finder())
"""
_WAYS = tuple(line.split('"')[1] for line in _SITE.splitlines() if line.strip().startswith("case "))


def doctored_bindings(n: int, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Run commands with each: they say in a line what is wrong, or do without it."""
    row = Trials("doctored bindings of llama.cpp")
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(_SITE)
    commands = {
        "decode": ["decode", str(model), "-n", "20", "--bandwidth", "20GB/s"], "doctor": ["doctor"],
        "plan": ["plan", str(model), "-c", "512"], "maxctx": measuring("maxctx", model),
    }  # fmt: skip
    for way, (name, words) in itertools.islice(itertools.cycle(itertools.product(_WAYS, commands.items())), n):
        given = {
            "PYTHONPATH": os.pathsep.join((str(site), os.environ["PYTHONPATH"])),
            "GGBENCH_TEST_BINDING": f"{way} {draw.randrange(10_000)}",
        }
        label = f"{name}, {given['GGBENCH_TEST_BINDING']}"
        with mock.patch.dict(os.environ, given), started(row, label, words, errors="replace", cwd=folder) as process:
            finish(row, label, process)
    return row
