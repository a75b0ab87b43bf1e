"""What this computer has: its GPUs, CPU, memory, and the bandwidth of each."""
