"""What llama-server has cached of each prompt of a session, in one slot with its defaults.

Caches of full attention are cut anywhere. A recurrent state has only its last position, and a windowed cache its last
positions, so after a cut the server goes back to a checkpoint: `update_slots` and `create_checkpoint` in
server-context.cpp of the llama.cpp in llama-cpp-python 0.3.36. It makes more of them at messages of users in
`/v1/chat/completions`, which are not counted here.
"""

from __future__ import annotations

import functools

from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.expect.sessions import Conversation
from ggbench.gguf_file.model_file import ModelFile

_MOST, _MIN_STEP = 32, 8192
"""Checkpoints of a slot (`--ctx-checkpoints`), and the distance within which one is dropped if there are as many."""
_BEFORE_END = 4
"""Tokens before the end of a prompt at which there is a checkpoint, and another one n_ubatch before it, or n_batch
before the end if that is less."""


def cached_tokens(session: Conversation, file: ModelFile, setup: LlamaConfig) -> tuple[int, ...]:
    """Return the tokens that are cached of each prompt: `cache_n` of llama-server's timings.

    The last token of an answer is never cached.
    """
    windows = [] if setup.swa_full else [each.window for each in file.states if each.window]
    window, n_slots = max(windows, default=0), setup.n_seq_max if setup.kv_unified else 1
    is_recurrent = any(each.recurrent_elements for each in file.states)
    n_end = min(setup.n_batch, _BEFORE_END + setup.n_ubatch)
    return _cached_by(session, window, whole_steps(n_slots * window + setup.n_ubatch), n_end, is_recurrent)


@functools.lru_cache(maxsize=64)
def _cached_by(session: Conversation, *cache: int) -> tuple[int, ...]:
    """Return the same by what decides it, which quants of a model share."""
    slot = _Slot(*cache)
    return tuple(
        slot.read(depth, depth + turn.n_new, turn.n_steps)
        for depth, turn in zip(session.depths, session.turns, strict=True)
    )


class _Slot:
    def __init__(self, window: int, n_cells: int, n_end: int, is_recurrent: int) -> None:
        """Begin empty, with `n_cells` of a windowed cache: `size_swa` in llama-kv-cache-iswa.cpp."""
        self._window, self._n_cells, self._n_end, self._is_recurrent = window, n_cells, n_end, is_recurrent
        self._length = 0
        self._checkpoints: list[int] = []

    def read(self, n_common: int, n_prompt: int, n_steps: int) -> int:
        """Read a prompt that begins with `n_common` tokens of the slot's, and answer it; return what was cached."""
        cached = self._cached(min(n_common, self._length))
        self._checkpoints = [each for each in self._checkpoints if each <= cached + 1]
        for each in (max(cached, n_prompt - self._n_end), n_prompt - _BEFORE_END):
            if 0 < each >= cached:
                self._keep(each)
        self._length = n_prompt + n_steps
        return cached

    def _cached(self, n_common: int) -> int:
        """Return how much of the tokens in common is cached or in a checkpoint."""
        if self._is_recurrent:
            can_cut = n_common == self._length
        else:
            first = max(0, self._length - self._n_cells)
            can_cut = not self._window or first < n_common - self._window
        if can_cut:
            return n_common
        n_back = 0 if self._is_recurrent else 1
        found = next((each for each in reversed(self._checkpoints) if each <= n_common + n_back), 0)
        return max(0, found - n_back)

    def _keep(self, n_tokens: int) -> None:
        """Add a checkpoint, instead of those that are too close to an earlier one if there are as many as may be."""
        kept = list[int]()
        n_over = len(self._checkpoints) + 2 - _MOST
        for each in self._checkpoints:
            if n_over > 0 and kept and each <= kept[-1] + _MIN_STEP:
                n_over -= 1
            elif each != n_tokens:
                kept.append(each)
        self._checkpoints = [*kept[-_MOST + 1 :], n_tokens]
