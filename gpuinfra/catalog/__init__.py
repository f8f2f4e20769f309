"""Catalogue records that all clouds share: machine types, GPU models, MIG profiles. Pure data, at the bottom of the package order."""
