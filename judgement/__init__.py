"""From facts to a verdict: a policy as data, and the one function that applies it."""
