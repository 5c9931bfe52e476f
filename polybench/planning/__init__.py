"""Plans a study: everything that is decided before the first worker starts."""
