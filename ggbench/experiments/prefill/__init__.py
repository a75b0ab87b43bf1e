"""Time prompts of several lengths: how long until the first token."""
