"""The TUI: choose, watch, compare. A front end over the same functions as the command line, and nothing more."""
