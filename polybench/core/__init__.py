"""Records, formulas and formatting without frameworks, input or output."""
