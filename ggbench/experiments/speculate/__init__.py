"""Time speculative decoding: whether a draft model pays on this machine, and from how many accepted tokens on."""
