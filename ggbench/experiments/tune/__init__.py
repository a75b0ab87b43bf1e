"""Find the settings that beat the defaults."""
