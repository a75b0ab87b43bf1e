"""Time prompts of several lengths."""
