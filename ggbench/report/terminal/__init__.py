"""Everything that is shown in a terminal, as rich renderables; the caller prints them.

Every text goes in as `rich.text.Text`, never as markup: names come from files that nobody vouches for.
"""

from ggbench.report.terminal.listings import catalog_table, runs_table, variants_table
from ggbench.report.terminal.model_file import header_details, tensors_table
from ggbench.report.terminal.row_details import prefill_table, row_details
from ggbench.report.terminal.rows_table import rows_table

__all__ = [
    "catalog_table",
    "header_details",
    "prefill_table",
    "row_details",
    "rows_table",
    "runs_table",
    "tensors_table",
    "variants_table",
]
