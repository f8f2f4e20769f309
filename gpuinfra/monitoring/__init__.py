"""Alert rules for the metrics of the nodes. Pure decisions, without a cloud SDK.

`alerts.py` contains the table of rules. Deploying Prometheus is left out. docs/guides/alerts.md describes the use.
"""
