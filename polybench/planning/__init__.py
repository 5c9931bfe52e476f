"""From a study to everything that is known before the first worker starts."""
