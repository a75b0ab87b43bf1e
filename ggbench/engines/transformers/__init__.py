"""Checkpoints of Hugging Face Transformers: config.json, safetensors headers, and what each method stores of a weight.

Config files and headers are untrusted: every size is checked before anything of it is read or made. A checkpoint
becomes a `ModelFile` with a GGUF's tensor names and the bytes of all that is stored of a weight, so the theory
counts both alike. torch and transformers are imported in the worker alone.
"""

SCHEMES = {"transformers": "transformers:<org/name or folder>", "transformers-twin": "transformers-twin:<id>"}
"""How MODEL names a checkpoint, by the text before the colon."""
NOUN, PROGRAM = "checkpoint", "Transformers"
