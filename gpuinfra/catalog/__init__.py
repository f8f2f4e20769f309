"""Catalog records that all clouds share: machine types, GPU models, and MIG profiles. Contains only data and imports no other packages."""
