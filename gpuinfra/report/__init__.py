"""Report: everything that people read, as text, page or document.

`tables` draws tables in a terminal, `html` renders pages from the templates. A report's document is described by
`report.schema.json`; a plan's by `docs/plan-json.md`. What goes into a report is decided elsewhere.
"""
