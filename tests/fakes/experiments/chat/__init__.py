"""Time the turns of a chat."""
