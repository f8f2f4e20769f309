"""The program that runs on a node: bootstrap steps, probes, judgement, evidence and upload.

It uses only the standard library and requires Python 3.9 or later, because the node's own interpreter runs it before anything is
installed. The bundle contains it as one zipapp.
`judge.py` is pure: it turns raw output into outcomes. `pulumi up` and the verification commands use the same judge.
Start with `judge.py`, then read one file of `checks/`, then `probe.py` and `evidence.py`.
"""

VERSION = "0.2.0"
