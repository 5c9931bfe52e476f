"""Runs studies: parity check, rounds of measurements, whole trainings."""
