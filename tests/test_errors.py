"""The tree of errors: drawn in the docstring, held here."""

import re

import pytest

from ggbench import errors
from ggbench.errors import GgbenchError, UnknownName, UsageError

_NODES = re.findall(r"^([ │├└─]*)([A-Z]\w+) +(\d+) ", errors.__doc__ or "", re.MULTILINE)


def drawn() -> list[tuple[str, str, int]]:
    """Each error of the drawing with the one that it hangs below and its exit code; the root hangs below itself."""
    branch: list[tuple[int, str]] = []
    nodes = []
    for indent, name, code in _NODES:
        branch = [node for node in branch if node[0] < len(indent)]
        nodes.append((name, branch[-1][1] if branch else name, int(code)))
        branch.append((len(indent), name))
    return nodes


def descendants(error: type[GgbenchError]) -> set[type[GgbenchError]]:
    return {error}.union(*(descendants(child) for child in error.__subclasses__()))


def test_the_docstring_draws_every_error() -> None:
    ours = {error.__name__ for error in descendants(GgbenchError) if error.__module__ == errors.__name__}
    assert {name for name, *_ in drawn()} == ours


@pytest.mark.parametrize(("name", "parent", "code"), drawn())
def test_every_error_has_the_parent_and_the_exit_code_drawn(name: str, parent: str, code: int) -> None:
    error: type[GgbenchError] = getattr(errors, name)
    assert error.exit_code == code
    assert error.__base__ is (Exception if parent == name else getattr(errors, parent))


def test_unknown_name_points_at_the_nearest() -> None:
    error = UnknownName("quant", "Q4_K_N", ["q8_0", "q4_k_m", "q2_k"])
    assert error.message == "no quant named 'Q4_K_N'"
    assert error.hint.startswith("nearest: q4_k_m")
    assert isinstance(error, UsageError)


def test_a_name_that_is_near_none_points_at_all_or_at_what_lists_them() -> None:
    assert UnknownName("model", "zzz", ["b", "a"]).hint == "known: a, b"
    assert UnknownName("model", "zzz", ["b", "a"], hint="see ggbench models").hint == "see ggbench models"
    assert UnknownName("model", "zzz", ["b", "a"], listed_by="ggbench models").hint == "ggbench models lists all"
    assert UnknownName("model", "abd", ["abc"], listed_by="ggbench x").hint == "nearest: abc; ggbench x lists all"
    error = GgbenchError("it broke", "repair it")
    assert (str(error), error.message, error.hint) == ("it broke", "it broke", "repair it")
