"""This machine: what it is, what else it does, and what its meters say."""
