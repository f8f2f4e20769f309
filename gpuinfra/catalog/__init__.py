"""Catalog records that all clouds share: machine types, GPU models and MIG profiles. Pure data without imports of other packages."""
