"""Whether somebody is logged in to the Hub here, without reading the token or asking the network."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggbench.errors import UsageError
from ggbench.hub.access import HUB, HubAccess


@dataclass(frozen=True, slots=True)
class HubLogin:
    """How ggbench reaches the Hugging Face Hub; the token itself is never read."""

    token_from: str | None
    """`HF_TOKEN`, or the path of the token's file; None where nobody is logged in."""
    is_exposed: bool
    """Whether other users of this machine can read the token's file."""
    is_offline: bool
    """By an environment variable."""
    endpoint: str | None
    """None for the Hub's own."""
    problem: str = ""
    """What is wrong with the settings."""


_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def describe_login(environ: Mapping[str, str] = os.environ) -> HubLogin:
    """Return where the token comes from: a variable, else the file that `hf auth login` writes.

    Source: huggingface_hub's get_token and constants. Google Colab's and a publisher's own tokens are not looked for.
    """
    problem, endpoint, is_offline = "", None, False
    try:
        access = HubAccess.from_environment()
    except UsageError:
        problem = "HF_ENDPOINT is not a URL"
    else:
        is_offline = access.offline
        endpoint = None if access.endpoint == HUB else access.endpoint
    token_from = next((name for name in _VARIABLES if environ.get(name, "").strip()), None)
    is_exposed = False
    if token_from is None:
        file = token_file(environ)
        mode = _mode(file)
        if mode is not None:
            token_from, is_exposed = str(file), bool(mode & (stat.S_IRGRP | stat.S_IROTH))
    return HubLogin(token_from, is_exposed, is_offline, endpoint, problem)


def token_file(environ: Mapping[str, str]) -> Path:
    """Return the file that holds the token, whether it exists or not."""
    caches = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(os.path.expandvars(environ.get("HF_TOKEN_PATH") or f"{home}/token")).expanduser()


def _mode(file: Path) -> int | None:
    """Return the permissions of a file that has content and that its folders let others reach; None without one."""
    try:
        status = file.stat()
        if not status.st_size:
            return None
        reachable = [each.stat().st_mode for each in file.absolute().parents]
    except OSError:
        return None
    others = stat.S_IXGRP | stat.S_IXOTH
    for mode in reachable:
        others &= mode
    shown = (stat.S_IRGRP if others & stat.S_IXGRP else 0) | (stat.S_IROTH if others & stat.S_IXOTH else 0)
    return status.st_mode & (shown | stat.S_IRUSR | stat.S_IWUSR)
