"""The numbers that make up the GGUF format itself, shared by the parser and the encoder.

Literals and not gguf's constants, because a GGUF of version 2 or 3 can have no others, and because `ggbench models`
reads the beginning of many headers without importing gguf. The tests compare them with gguf's.
Source: the GGUF specification (ggml, docs/gguf.md) and enum gguf_type of gguf.h.
"""

from __future__ import annotations

MAGIC = b"GGUF"
VERSION = 3
"""What ggbench writes."""
READABLE_VERSIONS = (2, 3)

ALIGNMENT = 32
"""Bytes; what a reader assumes where `general.alignment` is absent, and what ggbench writes."""
ALIGNMENT_KEY = "general.alignment"
ARCHITECTURE_KEY = "general.architecture"

NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The `struct` code of each value type that is a number."""
STRING, ARRAY = 8, 9
"""The other value types."""
