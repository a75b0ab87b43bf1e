"""GGUF files: read headers, count tensors, name quants, write twins."""
