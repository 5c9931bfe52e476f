"""The document of a study, one subject a file: seconds, bytes and counts; null is "no source", never 0."""
