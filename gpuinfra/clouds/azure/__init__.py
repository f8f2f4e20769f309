"""Microsoft Azure: what it sells (`catalog.py`, `regions.py`) and what is decided differently on it (`profile.py`)."""
