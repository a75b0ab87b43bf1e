"""A module of the package that exists only in a test, to be found by its name."""

import sys
from types import ModuleType

import pytest


def install(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    """The module `name` has these attributes until the test ends."""
    module = ModuleType(name)
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)
