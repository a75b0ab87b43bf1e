"""One driver, session and recorder for every experiment; the records of a run; the store."""
