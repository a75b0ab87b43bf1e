"""Search for the settings that beat the defaults."""
