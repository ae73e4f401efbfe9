"""The input layer's reading of a goal: customer ids, day windows, and what is wanted."""
