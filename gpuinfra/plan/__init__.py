"""The plan: every decision about a cluster, as data. `model.py` is the data model; `gpuinfra/planning.py` makes a plan."""
