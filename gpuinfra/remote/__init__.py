"""Remote: nodes over SSH, for machines that no user data reaches and for repairs.

| module | what it owns |
| --- | --- |
| `hosts.py` | which hosts there are and how each is reached: a hosts file |
| `tunnels.py`, `bastion.py` | the nodes of a stack that is up, through their cloud's tunnel |
| `known.py` | whose host key is whose: known_hosts files, host CAs, the handover; nothing is ever accepted and added |
| `connect.py` | the way to a host: directly, through jump hosts, or by a proxy command |
| `connection.py` | one SSH connection: handshake, host key, login, commands, with time limits |
| `keys.py`, `proxy.py` | what a person logs in with; proxy commands such as a cloud's tunnel |
| `fleet.py` | short tasks on many hosts at once, each host at its own pace |
| `far.py` | the side that runs on the host: standard library only, sent along and not left behind |
| `verify.py` | the evidence of a host, taken now |
| `deliver.py` | a bundle brought to a host, started, and its journal followed |
| `record.py` | what this operator ordered and saw, so that a second run goes on |

Nothing here decides what is installed; the plan did. docs/remote.md tells how it is used.
"""
