"""The agent as a program uses it: settings, logs, `FollowupAgent`."""
