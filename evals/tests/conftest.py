"""Nothing is sent anywhere, unless LANGSMITH_TEST_TRACKING says so."""

import os

# Read when the libraries are imported.
os.environ.setdefault("LANGSMITH_TRACING", "false")
os.environ.setdefault("LANGSMITH_TEST_TRACKING", "false")
