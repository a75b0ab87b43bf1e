"""What to run: candidates from what is known, the recommendation by stated rules with its reasons, and the commands."""
