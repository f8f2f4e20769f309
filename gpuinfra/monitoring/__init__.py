"""Alert rules for the metrics of the nodes, and the configuration of Prometheus and Alertmanager. Pure decisions, without a cloud SDK.

`alerts.py` contains the table of rules, and `config.py` the files of the control node, which `gpuinfra/plan/monitoring.py` plans.
docs/guides/alerts.md and docs/guides/monitoring.md describe the use.
"""
