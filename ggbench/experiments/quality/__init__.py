"""Score the quality of a quant or a KV cache type: perplexity and KL divergence."""
