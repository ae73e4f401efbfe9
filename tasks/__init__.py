"""Where follow-up tasks are kept: our own table, or a task system over HTTP."""
