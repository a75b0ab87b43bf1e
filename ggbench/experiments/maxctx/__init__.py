"""Find the largest n_ctx that works, and prove it by decoding there."""
