"""Tokens as text, where a character may span several tokens."""

from __future__ import annotations

import codecs
import ctypes
from array import array
from typing import Any

from llama_cpp import llama_cpp as lib


class TokenText:
    """The text of one decode, as it grows; always empty for a model without a tokenizer."""

    def __init__(self, vocab: Any) -> None:  # noqa: ANN401 - ctypes pointers have no useful type
        self._vocab = vocab
        self._is_silent = lib.llama_vocab_type(vocab) == lib.LLAMA_VOCAB_TYPE_NONE
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._piece = ctypes.create_string_buffer(256)

    def add(self, tokens: array[int]) -> str:
        """The text that these tokens add."""
        if self._is_silent:
            return ""
        pieces = []
        for token in tokens:
            size = lib.llama_token_to_piece(self._vocab, token, self._piece, len(self._piece), 0, True)
            pieces.append(self._piece.raw[: max(size, 0)])
        return self._decoder.decode(b"".join(pieces))
