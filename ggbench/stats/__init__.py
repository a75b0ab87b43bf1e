"""Statistics: from raw samples to W, B, their intervals, and percentiles."""
