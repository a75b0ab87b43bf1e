"""Shared parts of commands: options, output, progress, downloads, and measuring."""
