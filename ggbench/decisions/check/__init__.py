"""What a pasted command of llama-server does here, and what it wastes."""
