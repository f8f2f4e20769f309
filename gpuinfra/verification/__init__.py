"""Verification after the handover: judges evidence again, compares it with earlier evidence, and finds slow nodes.

`read.py` reads evidence from a folder, `store.py` from a stack's bucket, and `over_ssh.py` from hosts that were just checked.
`judged.py` judges each node, selects an action, and compares the result with a baseline. `pairs.py` and `rounds.py` find the slow node
in a fleet by measuring pairs. Identity is verified when evidence is fetched: signatures expire within minutes, so
old evidence does not prove who wrote it.
"""
