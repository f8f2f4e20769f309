"""Pulumi components of Google Cloud. They translate a plan and decide nothing; importing this package imports the cloud's SDK only when a module is used."""
