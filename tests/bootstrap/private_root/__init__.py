"""A private root with real bash, dpkg, apt, gpg and curl, and stand-in packages with the vendors' real names.

debootstrap creates the base: Debian bookworm with Ubuntu's os-release and suite names, because the tests need apt and dpkg,
and Debian's are available. `debs.py` builds packages, `vendors.py` defines them, `root.py` runs commands inside.
`tools/` replaces the kernel and systemd, which a folder cannot have.
"""
