"""The figures of five published benchmarks as rows, for comparison with your own measurements.

1299 rows, one per measured configuration: qwen1.5-hf 160, qwen2-speed 167, qwen2.5-speed 259, article 580,
bitsandbytes 133. `data/` holds them as printed, and `sources.toml` the versions, remarks and what was left out.
"""
