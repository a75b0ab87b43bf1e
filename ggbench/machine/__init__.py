"""The hardware of this computer: GPUs, CPU, memory, and their bandwidth."""
