"""HTTP service: models and indexes behind the interfaces that people have clients for, and a page that explains."""
