"""This computer: its GPUs, CPU, memory, and the bandwidth of each."""
