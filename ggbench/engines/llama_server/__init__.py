"""The user's own llama-server, started for a run and measured over HTTP."""
