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


def test_what_was_cached_before_the_first_turn_is_part_of_its_prompt(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(
        b'{"prompt_n": 1000, "cache_n": 5000, "predicted_n": 10}\n{"prompt_n": 91, "cache_n": 6010, "predicted_n": 1}'
    )
    assert read_session(path).depths == (0, 6010)


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


CUT = Conversation(
    "own", (Turn(1200, 12), Turn(100, 12, 1061 / 1212), Turn(300, 12, 0.93), Turn(50, 300), Turn(20, 12, 0.8)), ""
)


def test_a_windowed_cache_is_cut_as_far_as_its_padded_cells_reach() -> None:
    """What `cache_n` was of Gemma 3 270M with `-np 1 -ub 64`, which has 768 cells for a window of 512."""
    file = build_model(load_catalog().model("gemma-3-1b").hyper, "")
    assert cached_tokens(CUT, file, LlamaConfig(n_ubatch=64)) == (0, 1061, 1091, 1402, 1401)


def test_slots_that_share_a_windowed_cache_leave_each_its_windows() -> None:
    """What `cache_n` was of Gemma 3 270M in llama-server's default of four slots: 2,560 cells."""
    file = build_model(load_catalog().model("gemma-3-1b").hyper, "")
    session = Conversation("own", (Turn(1200, 4), Turn(40, 2, 650 / 1204)), "")
    assert cached_tokens(session, file, LlamaConfig(n_seq_max=4, kv_unified=True)) == (0, 650)


@pytest.mark.parametrize(
    ("model", "n_ubatch", "cut", "cached"),
    [
        ("gemma-3-1b", 512, 1995, 1995),  # the checkpoint before the last 4 of 2,000, whose last token is known
        ("gemma-3-1b", 512, 1994, 1483),
        ("granite-4.0-h-1b", 2048, 2900, 952),  # n_batch before the end of 3,000
    ],
)
def test_a_cut_goes_back_to_the_last_checkpoint(model: str, n_ubatch: int, cut: int, cached: int) -> None:
    """What `create_checkpoint` of llama-server does in its source; a windowed cache reads its last token again."""
    file = build_model(load_catalog().model(model).hyper, model)
    n_prompt = 3000 if n_ubatch == 2048 else 2000
    session = Conversation("own", (Turn(n_prompt, 900), Turn(100, 2, cut / (n_prompt + 900))), "")
    assert cached_tokens(session, file, LlamaConfig(n_ubatch=n_ubatch))[1] == cached


@pytest.mark.parametrize("n_ctx", [2, 256, 1024, 4096])
def test_a_session_within_a_context_is_held_by_it(n_ctx: int) -> None:
    many = Conversation("many", (Turn(1, 1),) * 3000, "")
    for session in (*known_sessions().values(), many):
        assert 0 < session.within(n_ctx).n_tokens <= n_ctx
