"""Time the turns of a session: how long each waits as the transcript grows in the cache."""
