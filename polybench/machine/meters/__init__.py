"""What workers use while they are timed, seen from the parent: CPU time, energy, the GPU's own readings.

A meter that cannot read says why and leaves its field empty; it never fails a cell.
"""
