"""The runs database: the list of threads, who may write to one, what was done downstream."""
