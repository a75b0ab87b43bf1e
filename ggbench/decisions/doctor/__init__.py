"""What `ggbench doctor` sees of the machine and of ggbench itself, what it finds wrong, and how it shows both."""
