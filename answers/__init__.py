"""What the user reads: the conclusion of a run, in the language of the goal."""
