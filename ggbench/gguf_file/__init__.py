"""GGUF files: reading headers, counting tensors, naming quants, writing twins."""
