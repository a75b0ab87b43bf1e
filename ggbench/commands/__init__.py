"""Parts of every command: options, output, progress, downloads, and the way from jobs to finished runs."""
