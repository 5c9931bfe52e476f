"""Analyzes saved documents: differences, history, merged machines, explanations, recommendations."""
