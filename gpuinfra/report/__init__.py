"""Report: outcomes for people and for programs.

One document (`report.schema.json` describes it) and one self-contained page made from it. Who fills it in - a
rehearsal, a deployment, a verification - is elsewhere; this package only knows what a report looks like.
"""

from gpuinfra.report.document import SCHEMA, node_entry, report_schema, totals
from gpuinfra.report.page import page

__all__ = ["SCHEMA", "node_entry", "page", "report_schema", "totals"]
