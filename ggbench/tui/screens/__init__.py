"""The screens and their style sheets."""
