"""Other tools' formats in and out, reports, and files of ggbench's own runs.

Input is untrusted: every text goes through `sanitize`, every number is checked, and sizes are checked before reading.
"""
