"""Checkpoints of Hugging Face Transformers: config.json, and the bytes each method stores for a weight.

Config files are untrusted: every size is checked before reading or allocating. A checkpoint becomes a `ModelFile` with
GGUF tensor names and all bytes stored for a weight, so that the theory applies to both. torch and transformers are
imported only in the worker.
"""
