"""Addresses of RPC servers as a person types them."""

import pytest

from ggbench.engines.llama.config import parse_servers
from ggbench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("192.168.1.7:50052", ("192.168.1.7:50052",)),
        ("Box-2.lan", ("box-2.lan:50052",)),
        (" a:1, b:65535 ", ("a:1", "b:65535")),
    ],
)
def test_addresses_keep_their_order_and_get_llama_cpps_port(text: str, servers: tuple[str, ...]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:65536", "a:b", "[::1]:50052", "::1", "http://a:1", "a b:1", "a:1,", "-a:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an RPC server"):
        parse_servers(text)
