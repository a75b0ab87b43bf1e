"""What tells runs of one command apart."""

from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama_server.config import LlamaServerConfig
from ggbench.show.names import distinct_by_engine


def test_runs_are_named_by_their_engine_if_there_are_several() -> None:
    own, server, other = LlamaConfig(), LlamaServerConfig(command="/a/llama-server"), LlamaServerConfig(command="/b/s")
    assert distinct_by_engine(["m q8_0"] * 2, [own, own]) == ("m q8_0", "m q8_0")
    assert distinct_by_engine(["m q8_0"] * 3, [own, server, other]) == (
        "m q8_0, llama",
        "m q8_0, llama-server=/a/llama-server",
        "m q8_0, llama-server=/b/s",
    )
