"""The TUI: choose, watch, compare. A front end over the same experiments as the command line, and nothing more."""
