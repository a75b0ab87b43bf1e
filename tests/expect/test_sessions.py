"""The sessions of the package, and those that people's files hold."""

from pathlib import Path

import msgspec
import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile
from ggbench.expect.session_cache import cached_tokens
from ggbench.expect.sessions import Conversation, Turn, known_sessions, read_session
from ggbench.gguf_file.layout import build_model
from ggbench.models.catalog import load_catalog


def test_a_transcript_grows_by_what_is_read_and_generated_and_shrinks_by_what_is_dropped() -> None:
    session = Conversation("own", (Turn(1000, 100), Turn(50, 10), Turn(300, 40, 0.5), Turn(5, 5)), "")
    assert session.depths == (0, 1100, 580, 920)
    assert session.n_tokens == 1160, "before the cut"


def test_the_known_sessions_fit_the_contexts_that_people_use() -> None:
    lengths = {name: (len(each.turns), each.n_tokens) for name, each in known_sessions().items()}
    assert lengths == {"coding": (40, 63_640), "documents": (11, 31_204), "chat": (13, 6_713)}


OURS = [{"new": 1000, "generated": 100}, {"new": 50, "generated": 10}, {"new": 620, "generated": 40, "kept": 0.5}]
OPENAI = [
    {"usage": {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}},
    {"usage": {"prompt_tokens": 1150, "completion_tokens": 10}},
    {"prompt_tokens": 1200, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 580}},
]
SERVER = [
    {"timings": {"prompt_n": 1000, "cache_n": 0, "predicted_n": 100, "prompt_ms": 5.0}},
    {"timings": {"prompt_n": 50, "cache_n": 1100, "predicted_n": 10}, "usage": {"prompt_tokens": 7}},
    {"prompt_n": 620, "cache_n": 580, "predicted_n": 40},
]


@pytest.mark.parametrize("lines", [OURS, OPENAI, SERVER])
def test_a_file_of_one_s_own_or_of_a_server(lines: list[object], tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(b"\n\n".join(map(msgspec.json.encode, lines)))
    assert read_session(path).turns == (Turn(1000, 100), Turn(50, 10), Turn(620, 40, 0.5))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no session"),
        (b"[1]", "line 1 is not a turn"),
        (b'{"new": 5, "generated": 1}\n{"new": 5}', "line 2 is not a turn"),
        (b'{"new": -5, "generated": 1}', "line 1"),
        (b'{"new": 5, "generated": 1, "kept": 1.5}', "line 1"),
        (b'{"usage": {"completion_tokens": 3}}', "line 1"),
        (b'{"x": ' + b"[" * 99_999, "line 1"),
        (b"\xff\xfe", "line 1"),
        (b'{"new": 2147483000, "generated": 1}\n' * 2, "after line 2"),
        (b'{"new": 5, "generated": 1}\n' * 10_001, "10,000 turns"),
    ],
)  # fmt: skip
def test_what_is_no_session(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text)
    with pytest.raises(BadFile, match=words):
        read_session(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        read_session(tmp_path / "none")


GROWS = Conversation(
    "own", tuple(Turn(*each) for each in ((300, 40), (60, 30), (700, 40), (20, 30), (900, 30), (40, 20))), ""
)


@pytest.mark.parametrize(
    ("model", "cached"),
    [
        ("qwen3-0.6b", (0, 339, 429, 1169, 1219, 2149)),
        ("granite-4.0-h-1b", (0, 339, 429, 1169, 1219, 2149)),
        ("gemma-3-1b", (0, 295, 395, 1169, 1219, 2149)),  # below its window of 512 each answer is read again
    ],
)
def test_what_llama_server_has_cached_of_a_transcript_that_grows(model: str, cached: tuple[int, ...]) -> None:
    """What its `cache_n` said of models of these kinds: scripts/EVIDENCE.md."""
    file = build_model(load_catalog().model(model).hyper, model)
    assert cached_tokens(GROWS, file, LlamaConfig()) == cached
