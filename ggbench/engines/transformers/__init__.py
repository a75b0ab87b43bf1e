"""Checkpoints of Hugging Face Transformers: config.json, safetensors headers, and what each method stores of a weight.

Nothing here needs torch or transformers, and no weight is read. Config files and headers are untrusted: every size is
checked before anything of it is read or made. A checkpoint becomes a `ModelFile` with a GGUF's tensor names and the
bytes of all that is stored of a weight, so that the theory counts both alike. The room may import `gguf_file`,
`records` and what lies below them.
"""
