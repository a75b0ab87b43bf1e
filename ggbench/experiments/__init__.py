"""Plans and measurements, each a generator of progress records; both front ends draw the same ones."""
