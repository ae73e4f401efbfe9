"""Every error a caller may meet. The messages are for the person who must act.

FollowupError
├── UsageError                 what was asked for cannot be taken (exit code 2)
│   ├── InvalidGoal            empty, too long, control characters, unknown input
│   ├── InvalidOption          a thread id, a time or a number that is none
│   └── NoAnswer               a blank answer: the question stays open
├── ConfigurationError         settings, home or runs database (exit code 2)
│   ├── CustomerDataError      the business data: missing, locked, broken, another version
│   └── PolicyError            the company's own policy file
├── StorageError               the runs database failed in the middle of a run (exit code 1)
├── ShuttingDown               the agent is being closed and takes nothing new (exit code 1)
└── ThreadError                the thread is not what was thought (exit code 4)
    ├── ThreadBusy             another run is writing to it now
    │   └── LeaseLost          this run was: it hung, and another has taken the thread over
    ├── UnknownThread          there is none of this id
    ├── NotWaiting             it waits for nothing, or for something else
    ├── NotYours               it waits for the approval of somebody else
    └── IncompatibleThread     another version of the graph has stored it
"""


class FollowupError(Exception):
    """Base of the family."""


class UsageError(FollowupError, ValueError):
    """What was asked for cannot be taken; nothing was changed."""


class InvalidGoal(UsageError):
    """The goal cannot be taken; the message says what to change."""


class InvalidOption(UsageError):
    """An option's value cannot be taken."""


class NoAnswer(UsageError):
    """A blank answer. The question stays open under the same id."""


class ConfigurationError(FollowupError, ValueError):
    """The agent cannot be opened with these settings.

    A ValueError, as UsageError is: LangGraph's server shows the message of no other kind.
    """


class CustomerDataError(ConfigurationError):
    """The business data cannot be used."""


class PolicyError(ConfigurationError):
    """The company's own policy file cannot be used; the message names the key."""


class StorageError(FollowupError):
    """The runs database failed in the middle of a run. What was stored stays; the run can go on."""


class ShuttingDown(FollowupError):
    """The agent is being closed: it takes nothing new."""


class ThreadError(FollowupError):
    """The thread cannot do that."""


class ThreadBusy(ThreadError):
    """Another run, answer or approval is writing to this thread now."""


class LeaseLost(ThreadBusy):
    """This run did not renew its lease in time, and another has taken the thread over."""


class UnknownThread(ThreadError):
    """No thread of this id."""


class NotWaiting(ThreadError):
    """The thread waits for nothing, or for something else."""


class NotYours(ThreadError):
    """The thread waits for the approval of somebody else."""


class IncompatibleThread(ThreadError):
    """The thread was stored by another version of the graph."""
