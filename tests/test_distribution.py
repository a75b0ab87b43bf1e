"""What a wheel and a source distribution hold, as hatchling would build them from this checkout."""

import fnmatch
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import ggbench

ROOT = Path(__file__).parent.parent
DATA = (
    "ggbench/models.toml", "ggbench/py.typed", "ggbench/models/published/data/*.csv",
    "ggbench/models/published/data/*sources.toml", "ggbench/expect/data/*.csv", "ggbench/expect/data/device-speed.json",
    "ggbench/expect/data/sessions.toml",
    "ggbench/machine/known_devices.toml", "ggbench/gguf_file/layouts.toml", "ggbench/cli/topics/*.txt",
    "ggbench/engines/llama/server_options.csv",
    "ggbench/show/*.txt", "ggbench/show/words.toml", "ggbench/formats/page.css", "ggbench/formats/page.js",
    "ggbench/tui/app.tcss",
)  # fmt: skip
"""What of the package is no Python."""


@pytest.fixture(scope="module")
def wheel() -> frozenset[str]:
    return frozenset(each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: frozenset[str]) -> None:
    package = {str(file.relative_to(ROOT)) for file in (ROOT / "ggbench").rglob("*") if file.is_file()}
    expected = {path for path in package if "__pycache__" not in path} | {"ggbench/models.toml"}
    assert wheel == expected


def test_what_is_no_python_is_data_that_is_read(wheel: frozenset[str]) -> None:
    data = {path for path in wheel if not path.endswith(".py")}
    assert [pattern for pattern in DATA if not fnmatch.filter(data, pattern)] == []
    assert {path for path in data if not any(fnmatch.fnmatch(path, pattern) for pattern in DATA)} == set()


def test_the_source_distribution_builds_and_tests_itself() -> None:
    files = {each.distribution_path for each in SdistBuilder(str(ROOT)).recurse_included_files()}
    for needed in ("README.md", "LICENSE", "models.toml", "ggbench/__init__.py", "tests/conftest.py"):
        assert needed in files
    assert "scripts/setup" in files and ".readme/pick.svg" in files
    assert not {
        path for path in files if path.endswith((".gguf", ".pyc", ".whl")) or path.startswith((".venv", "dist"))
    }


def test_the_version_is_stated_once_and_its_changes_are_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"] and "version" not in project
    newest = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].split()[0]
    assert newest in ("Unreleased", ggbench.__version__)
