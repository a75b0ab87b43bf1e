"""scripts/vulkan_check as far as it goes without a Vulkan build."""

import subprocess
from pathlib import Path

import pytest

from scripts import vulkan_check
from tests.scripts.test_setup import vulkan_headers


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with bash and grep on its PATH, and a driver."""
    tools, driver = tmp_path / "tools", tmp_path / "driver.json"
    tools.mkdir()
    for name in ("bash", "grep", "uname"):
        (tools / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    driver.touch()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("VK_DRIVER_FILES", str(driver))
    return tmp_path


def test_what_is_missing_is_said_before_anything_is_compiled(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headers = vulkan_headers(bare / "include", (1, 3, 239))

    assert vulkan_check.main(["--build", str(bare / "build"), "--headers", str(headers)]) == 2

    error = capsys.readouterr().err
    assert "Error: no compiler of shaders (glslc) on PATH\nHint: on Debian and Ubuntu: apt install glslc\n" in error
    assert f"Error: the Vulkan headers in {headers} are 1.3.239, and llama.cpp needs 1.3.272\n" in error
    assert not (bare / "build").exists()
