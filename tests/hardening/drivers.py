"""A driver that ends its process: while llama.cpp is loaded, while its devices are listed, or at a random moment."""

import itertools
import os
import random
import resource
from pathlib import Path
from unittest import mock

from tests.hardening.commands import finish, measuring, started
from tests.hardening.trials import Trials

_SITE = """
import ctypes, os, random, signal, sys, threading
way, moment = os.environ["GGBENCH_TEST_DRIVER"].split(" while ")
def end():
    os.write(2, b"vk_driver: fatal\\x1b[2J\\xff: device lost\\n")
    os.abort() if way == "SIGABRT" else os.kill(os.getpid(), getattr(signal, way))
def watch(event, args):
    is_loaded = event == "ctypes.dlopen" and "libllama" in str(args[0])
    is_listed = event == "ctypes.dlsym" and args[1] == "ggml_backend_dev_count"
    if is_loaded if moment == "it loads" else is_listed:
        end()
if any(word.startswith("ggbench.engines.llama.") for word in sys.orig_argv):
    if moment == "it computes":
        threading.Timer(random.uniform(0.2, 2), end).start()
    else:
        sys.addaudithook(watch)
"""
"""Python runs it at the start of each process, also of those in which llama.cpp is loaded."""
_WAYS = ("SIGABRT", "SIGSEGV", "SIGILL", "SIGKILL")
_MOMENTS = ("it loads", "devices are listed", "it computes")


def aborting_drivers(n: int, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Run each command whose llama.cpp ends so: it says so and ends, and leaves nothing behind."""
    row = Trials("a driver that aborts")
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(_SITE)
    commands = {
        "decode": measuring("decode", model), "doctor": ["doctor"], "maxctx": measuring("maxctx", model),
        "plan": ["plan", str(model), "-c", "512"], "bench": measuring("bench", model),
        "pick": ["pick", str(model)], "models": ["models"],
    }  # fmt: skip
    cases = list(itertools.product(commands.items(), _MOMENTS, _WAYS))
    draw.shuffle(cases)
    for (name, words), moment, way in itertools.islice(itertools.cycle(cases), n):
        given = {
            "PYTHONPATH": os.pathsep.join((str(site), os.environ["PYTHONPATH"])),
            "GGBENCH_TEST_DRIVER": f"{way} while {moment}",
        }
        label = f"{name}, {way} while {moment}"
        with (
            mock.patch.dict(os.environ, given),
            started(row, label, words, errors="replace", cwd=folder, preexec_fn=_allow_core_files) as process,
        ):
            finish(row, label, process)
        for left in folder.glob("core*"):
            row.fault(f"{label}: left {left.name} of {left.stat().st_size:,} bytes")
            left.unlink()
    return row


def _allow_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
