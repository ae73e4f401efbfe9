"""The `followup` command. Commands that run no graph import neither LangGraph nor a model client."""
