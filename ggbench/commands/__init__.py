"""What every command is made of: options, output, progress, downloads, and the way from jobs to finished runs."""
