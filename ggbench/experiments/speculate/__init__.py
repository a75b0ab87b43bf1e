"""Find whether a draft model pays here, and from what acceptance on."""
