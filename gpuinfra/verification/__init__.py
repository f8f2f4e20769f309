"""Verification: evidence of nodes judged again, by whoever holds it.

The judgement is `gpuinfra.node.judge`, the same that ran on the node and in `NodesReady`.
This package reads evidence from a folder (`read.py`), says what to do with each node and what got worse since an earlier
time (`judged.py`), and writes it for people and programs (`write.py`). Identity is not its business: signatures of old
evidence have expired, and `gpuinfra.handover` verified them in time.
"""
