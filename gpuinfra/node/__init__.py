"""What runs on a node: steps, probes, judgement, evidence, upload.

Standard library only and Python 3.9 or newer, because the node's own interpreter runs it before anything is installed.
The bundle carries it as one zipapp.
The same judgement runs in `pulumi up` and in `gpuinfra verify`, so `judge.py` is pure: raw output in, outcomes out.
Read `judge.py` first, then one file of `checks/`, then `probe.py` and `evidence.py`.
"""

VERSION = "0.1.0"
