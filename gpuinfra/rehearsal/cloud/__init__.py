"""The stand-in cloud: answers in a rehearsal where a real cloud answers in a deployment.

    engine           -> core/provider.py -> core/check.py, diff.py, replace.py   validates inputs, computes changes
                                         -> <cloud>/behaviors/                  what a cloud does beyond keeping inputs
                                         -> core/synth.py, <cloud>/ids.py        every output that the SDK declares
                                         -> core/store.py                        one SQLite file, consistent after any kill
    nodes, operator  -> core/server.py   -> <cloud>/http/, core/control.py       metadata, storage, identity, groups, control

The shape of a resource type or a function is read from the installed Pulumi SDKs (`core/sdk.py`); there is no list. What SDKs do not
contain (what forces replacement, which names are unique, what blocks deletion) is in small tables with their sources.
"""
