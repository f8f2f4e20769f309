"""The second region: the types and protocols that the modules in `clouds/<cloud>/region/` implement."""
