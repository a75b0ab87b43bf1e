"""One module for each kind of run; both front ends drive them through the same registry."""
