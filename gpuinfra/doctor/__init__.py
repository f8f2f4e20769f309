"""What a deployment and a rehearsal require: `machine.py` examines this machine, `state.py` the state backend, and `cloud.py` the cloud.

Each question has a row (`gpuinfra/clouds/preflight.py`) with what was found, what is required, and the fix. `gpuinfra doctor` shows them.
"""
