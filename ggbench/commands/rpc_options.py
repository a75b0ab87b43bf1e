"""What has to be true before the devices of RPC servers can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.engines.contract import EngineConfig


def check_rpc(setup: EngineConfig) -> None:
    """Raise UsageError for a setup with RPC servers where llama.cpp was built without RPC."""
    from ggbench.engines.llama.rpc_devices import BUILD_HINT, is_built_with_rpc

    if getattr(setup, "rpc_servers", ()) and not is_built_with_rpc():
        raise UsageError("--rpc: this llama.cpp was built without RPC", BUILD_HINT)
