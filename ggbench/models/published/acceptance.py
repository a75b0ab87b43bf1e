"""How many tokens a step of speculative decoding gave others, by method, target, draft and task.

`data/acceptance.csv` has one row per published figure, each with the address of its document. A mean length counts the
target's own token. Where a document prints counts, they are in `printed`, and the length is tokens / (tokens - accepted
drafts), since every step gives one token of the target.
"""

from __future__ import annotations

import csv
from typing import Literal

import msgspec

from ggbench.models.published import data_text, reads_data

Method = Literal["draft", "mtp", "eagle3", "dflash", "ngram", "medusa", "eagle1", "eagle2"]
"""llama.cpp has no equivalent of the last three, which draft trees."""


class Acceptance(msgspec.Struct, frozen=True):
    """One published mean length; None and empty texts mean not stated."""

    source: str
    """Address of the document."""
    method: Method
    target: str
    """Model, with its quant if stated."""
    draft: str
    """Draft model, or `head in the file`."""
    mean_len: float
    """Tokens per step of the target: 1 if no draft is accepted, at most n_draft + 1."""
    task: str = ""
    n_draft: int | None = None
    """Maximum tokens drafted in a step."""
    temperature: float | None = None
    device: str = ""
    printed: str = ""
    """Text in the document, if the length is derived from it or rounded."""
    remark: str = ""


@reads_data
def load_acceptance() -> tuple[Acceptance, ...]:
    lines = csv.DictReader(data_text("acceptance.csv").splitlines())
    stated = [{name: cell for name, cell in line.items() if cell} for line in lines]
    return msgspec.convert(stated, tuple[Acceptance, ...], strict=False)
