"""The stand-in cloud: simulates the cloud providers during a rehearsal.

    engine           -> core/provider.py -> core/check.py, diff.py, replace.py   validates inputs, computes changes
                                         -> <cloud>/behaviors/                  cloud-specific behavior
                                         -> core/synth.py, <cloud>/ids.py        values for all outputs declared by the SDK
                                         -> core/store.py                        one SQLite file, crash-safe
    nodes, operator  -> core/server.py   -> <cloud>/http/, core/control.py       metadata, storage, identity, groups, control

The inputs and outputs of resource types and functions are read from the installed Pulumi SDKs (`core/sdk.py`). Small
tables, with their sources, contain facts that the SDKs lack: inputs that force replacement, unique names, and dependencies
that block deletion.
"""
