"""Sizing: llama.cpp's allocator run dry, memory budgets, placement of weights and cache, and the plan of a quant."""
