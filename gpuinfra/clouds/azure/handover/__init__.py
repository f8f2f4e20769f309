"""The handover on Azure: membership, evidence, identity and console, and the texts with which the cloud refuses capacity."""
