"""Report: all output for users, as text, HTML pages or JSON documents.

`tables` prints tables in a terminal, `html` renders pages from templates. `docs/reference/plan-json.md` describes the
document of a plan. This package formats content but does not determine it.
"""
