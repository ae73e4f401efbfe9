"""The company's own customer data: four relations that are read, one that is written."""
