"""Report: all output for people, as text, page or document.

`tables` prints tables in a terminal, `html` renders pages from templates. A report's document is described by
`report.schema.json`; a plan's by `docs/plan-json.md`. This package formats content and does not decide it.
"""
