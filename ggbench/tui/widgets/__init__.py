"""Parts of the screens, given their data as frozen records."""
