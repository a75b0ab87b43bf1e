"""Numbers of tokens on the command line, as people write them."""

import pytest

from tests.cli.conftest import Run


@pytest.mark.llama
@pytest.mark.parametrize("text", ["1k", "1K", "1,024", "1_024", "1024"])
def test_a_context_is_read_as_people_write_it(ggbench: Run, text: str) -> None:
    ran = ggbench("plan", "twin:qwen1.5-0.5b", "q8_0", "--json", "-c", text)
    assert [row["n_ctx"] for row in ran.json["rows"]] == [1024]
    assert (f"{text} = 1,024 tokens" in ran.err) == text.lower().endswith("k")


@pytest.mark.parametrize("text", ["16x", "16,38", "17m"])
def test_the_tui_reads_tokens_in_the_same_way(ggbench: Run, text: str) -> None:
    assert "tokens" in ggbench("tui", "--n-gen", text).err
