"""Entry point: quick to start, one or two lines for any error, the contract's exit codes."""

import gc
import os
import sys

# Imports make no garbage worth collecting; without this they are collected over and over.
gc.disable()
os.environ.setdefault("LANGSMITH_TRACING", "false")  # tracing is asked for, never met by chance

OK, FAILED, USAGE, WAITING, THREAD = 0, 1, 2, 3, 4
CUT_OFF = "interrupted; finished steps are kept, see `followup threads`"
INTERRUPTED, TERMINATED = 130, 143
"""Shell conventions for Ctrl-C and SIGTERM."""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            # Chinese text must neither crash an ASCII terminal nor become escapes in a file.
            stream.reconfigure(encoding="utf-8", errors="replace")
    # Under an ASCII locale Python has decoded the arguments to stand-ins for their UTF-8 bytes.
    code = _run([os.fsencode(text).decode("utf-8", "surrogateescape") for text in sys.argv[1:]])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gc.freeze()  # what is left dies with the process: no last collection
    sys.exit(code)


def imports_done() -> None:
    """Called when a command has imported what it needs: collect only what comes after."""
    gc.freeze()
    gc.enable()


def _run(arguments: list[str]) -> int:
    import typer
    from typer.exceptions import TyperException

    from followup_agent.cli.app import app
    from followup_agent.service.errors import FollowupError, ShuttingDown, StorageError, ThreadError

    debug = "--debug" in arguments
    try:
        result = app(
            [argument for argument in arguments if argument != "--debug"],
            prog_name="followup",
            standalone_mode=False,
        )
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(str(error) + "\n")
            return USAGE
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "followup"
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        in_group = context is not None and hasattr(context.command, "commands")
        if in_group and type(error).__name__ == "NoSuchOption":
            message += " Options stand after the command."
        return _complain(f"{message} See `{where} --help`.", USAGE, prefix=where)
    except (KeyboardInterrupt, typer.Abort):
        return _complain(CUT_OFF, INTERRUPTED)
    except FollowupError as error:
        if debug:
            raise
        if isinstance(error, StorageError | ShuttingDown):
            return _complain(str(error), FAILED)
        return _complain(str(error), THREAD if isinstance(error, ThreadError) else USAGE)
    except BrokenPipeError:
        return OK
    except Exception as error:
        if debug:
            raise
        return _complain(
            f"internal error: {type(error).__name__}: {error}. Run it again with --debug for "
            "the traceback.",
            FAILED,
        )
    if result == INTERRUPTED:  # typer's own answer to Ctrl-C
        return _complain(CUT_OFF, INTERRUPTED)
    return result if isinstance(result, int) else OK


def _complain(message: str, code: int, prefix: str = "followup") -> int:
    sys.stderr.write(f"{prefix}: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    main()
