"""The stand-in cloud: what answers in a rehearsal where a real one would.

    engine -> provider.py -> check.py, diff.py, replace.py    does the declaration hold, what would change
                          -> behaviours/                      what a cloud does beyond keeping what it was told
                          -> synth.py, ids.py                 every output that the SDK declares
                          -> store.py                         one SQLite file, whole after any kill
    nodes, operators -> http/                                 metadata, object storage, identity, groups, control

What a resource type or a function looks like is read from the installed Pulumi SDKs (`sdk.py`), never from a list.
What SDKs do not say - what forces replacement, which names are unique, what refuses deletion - comes from small tables
with their sources. What it cannot show: real quota, real capacity, real permissions, time.
"""
