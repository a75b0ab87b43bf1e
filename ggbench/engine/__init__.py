"""The contract of engines and its implementations; llama.cpp runs in a child process."""
