"""Verification after the handover: judge evidence again, compare it with earlier evidence, find slow nodes.

`read.py` reads evidence from a folder, `store.py` from a stack's bucket, `over_ssh.py` from hosts that were checked now.
`judged.py` judges each node, selects an action, and compares with a baseline. `pairs.py` and `rounds.py` find the slow node
of a fleet from measurements of pairs. Identity is verified where evidence is fetched: signatures expire within minutes, so
old evidence carries no proof of who wrote it.
"""
