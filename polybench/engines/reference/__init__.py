"""The NumPy float64 oracle of the identity check."""
