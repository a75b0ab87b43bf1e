"""Score what a quant or KV type loses: perplexity and KL divergence."""
