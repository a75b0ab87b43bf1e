"""One folder for each experiment, found by its name; nothing outside a folder names its contents.

`record` has its settings, result and observations: a field of the settings with an `Option` becomes an option of the
command and is part of the line that reproduces a run. `measure` has EXPERIMENT: the workloads to run, and the reduction
of the records to the result. `show` has PRESENTER: documents, tables, figures, columns, metrics and caveats. `command`
has the click command, whose line in `ggbench --help` is the docstring of the folder's package. No folder imports
another.
"""
