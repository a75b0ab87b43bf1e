"""Find the largest n_ctx that works, by real allocations, and prove it by decoding there."""
