"""The figures of seven published documents as rows, for comparison with your own measurements.

1388 rows, one per measured configuration: qwen1.5-hf 160, qwen2-speed 167, qwen2.5-speed 259, article 580,
bitsandbytes 133, llama.cpp-perplexity 65, llama.cpp-quantize 24. `data/` holds them as printed, and `sources.toml` the
versions, remarks and what was left out.
"""
