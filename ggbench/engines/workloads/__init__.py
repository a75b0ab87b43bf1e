"""What an engine can be asked to do with a model: one module each, with its request and how llama.cpp does it.

A module's `carry_out(model, request, emit)` runs in the worker; `model` is `ggbench.engines.llama.model.LlamaModel`.
"""
