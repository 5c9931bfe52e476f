"""The saved documents: times in seconds, sizes in bytes; null means "no source", never 0."""
