"""Score what a quant or a KV cache type costs: perplexity and KL divergence."""
