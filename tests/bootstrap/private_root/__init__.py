"""A private root with real bash, dpkg, apt, gpg and curl, and stand-in packages of the vendors' real names.

The base is made by debootstrap: Debian bookworm that carries Ubuntu's os-release and Ubuntu's suite names, because what
matters here is apt and dpkg, and Debian's are at hand. `debs.py` builds packages, `vendors.py` says which there are,
`root.py` runs commands inside. `tools/` stands in for the kernel and systemd, which a folder cannot have.
"""
