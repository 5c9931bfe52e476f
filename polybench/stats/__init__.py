"""Statistics of step times: intervals, fits, change points. Pure functions of NumPy arrays and floats."""
