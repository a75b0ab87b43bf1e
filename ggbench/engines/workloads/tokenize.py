"""Turn a text into the model's tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import Stage, Workload
from ggbench.engines.events import Event, Tokenized

if TYPE_CHECKING:
    from ggbench.engines.llama.model import LlamaModel


class Tokenize(Workload, frozen=True):
    """Tokenize a text as llama-perplexity does. Reports a `Tokenized`.

    BOS comes before it where the model adds one; the name of a special token in the text is read as plain text.
    """

    name: ClassVar[str] = "tokenize"
    stage: ClassVar[Stage] = "score"

    text: str


REQUEST = Tokenize


def carry_out(model: LlamaModel, request: Tokenize, emit: Callable[[Event], None]) -> None:
    """Raises LlamaRefused for a model without a tokenizer."""
    from llama_cpp import llama_cpp as lib

    from ggbench.engines.llama.model import LlamaRefused

    vocab = model.vocab
    if lib.llama_vocab_type(vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
        raise LlamaRefused("score", "the model has no tokenizer, so it cannot read a text")
    text = request.text.encode()
    n_tokens = -lib.llama_tokenize(vocab, text, len(text), None, 0, True, False)
    buffer = (lib.llama_token * max(0, n_tokens))()
    if lib.llama_tokenize(vocab, text, len(text), buffer, n_tokens, True, False) != n_tokens:
        raise LlamaRefused("score", "the model's tokenizer could not read the text")
    adds_bos = lib.llama_vocab_get_add_bos(vocab)
    bos = lib.llama_vocab_bos(vocab) if adds_bos else None
    emit(Tokenized(list(buffer), lib.llama_vocab_n_tokens(vocab), bos))
