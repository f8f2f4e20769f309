"""Failover to the second region of a stack: a list of steps that are journaled and can be continued after an interruption.

`steps` derives the steps, `run` runs them, `journal` stores which steps are done. The requests to a cloud are in the `failover` module
of its package (`gpuinfra/clouds/region/failover.py`).
"""
