"""The Hugging Face Hub: repo listings, GGUF headers read by HTTP range, and resumable downloads.

huggingface_hub is imported nowhere else. Listings and headers are cached on disk, so repeating a command needs no
network.
"""
