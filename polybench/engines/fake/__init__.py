"""Simulated engine without a framework."""
