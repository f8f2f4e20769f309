"""The plan: all decisions about a cluster, as data. `model.py` defines the data model, and `gpuinfra/planning.py` creates a plan."""
