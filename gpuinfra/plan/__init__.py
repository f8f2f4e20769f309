"""The plan: all decisions about a cluster, as data. `model.py` defines the data model, and `gpuinfra/plan/make.py` creates a plan."""
