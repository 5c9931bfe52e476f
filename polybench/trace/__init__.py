"""Recorded trainings: `recorder` writes a trace, `file` reads it, `diff` finds where two of them part, and why."""
