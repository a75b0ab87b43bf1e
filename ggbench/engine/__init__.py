"""llama.cpp in a child process, and its end as a value."""
