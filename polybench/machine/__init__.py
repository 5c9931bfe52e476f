"""Properties of this machine, its current load, and its meters."""
