"""Meters of what workers use while a timing block runs: CPU time, energy and GPU readings.

The parent reads them. A meter that cannot read reports the reason and leaves its field empty; it never fails
a configuration.
"""
