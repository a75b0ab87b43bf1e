"""Pick a quant to run: the candidates, the recommendation by stated rules with its reasons, and the commands."""
