"""The driver, session and recorder of all experiments; the records of a run; the store."""
