"""The commands and their options. What they do is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="followup",
    help="Does this customer need priority follow-up, why, and what should we do?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data = typer.Typer(
    name="data",
    help="Fill the business database, check it, map an export to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data)
policy = typer.Typer(
    name="policy",
    help="The judgement policy: what counts how much, and how a score arose.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(policy)
threads = typer.Typer(
    name="threads",
    help="What ran, and what waits; export and forget old threads.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
app.add_typer(threads)

evals = typer.Typer(
    name="eval",
    help="Judge the planner, the policy and the tools by fixed cases.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(evals)

Home = Annotated[
    Path | None, typer.Option("--home", help="Folder of the databases and logs (FOLLOWUP_HOME).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Thread = Annotated[str, typer.Argument(help="The thread, as printed by ask or threads.")]
Log = Annotated[str | None, typer.Option("--log", help="Write the event log to stderr: --log -")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="ISO 8601 time or day; nothing later is seen. Default: now."),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"followup-agent {version('followup-agent')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass


@app.command()
def ask(
    goal: Annotated[str, typer.Argument(help="What to judge or find out, Chinese or English.")],
    thread: Annotated[
        str | None, typer.Option("--thread", help="Thread to use. Default: a new one.")
    ] = None,
    planner: Annotated[
        str | None, typer.Option("--planner", help="rules, llm or auto (FOLLOWUP_PLANNER).")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", help="Decisions the run may take.")
    ] = None,
    as_of: AsOf = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            metavar="SECONDS",
            help="Seconds the run may work; your own time to answer is not counted.",
        ),
    ] = None,
    log: Log = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Judge a customer, or answer a question; shows each step as it happens."""
    from followup_agent.cli import runs

    return runs.ask(
        goal,
        thread=thread,
        max_steps=max_steps,
        as_of=as_of,
        deadline_s=deadline,
        planner=planner,
        log=log,
        as_json=as_json,
        home=home,
    )


@app.command()
def answer(
    thread: Thread,
    text: Annotated[str, typer.Argument(help="The answer to the pending question.")],
    question: Annotated[
        str | None, typer.Option("--question", help="Answer only this one, such as q1.")
    ] = None,
    log: Log = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Answer the pending question and go on."""
    from followup_agent.cli import runs

    return runs.answer(thread, text, question, log=log, as_json=as_json, home=home)


Approval = Annotated[
    str | None, typer.Option("--approval", help="Decide only this one, such as a1.")
]


@app.command()
def approve(
    thread: Thread,
    edit: Annotated[
        str | None,
        typer.Option("--edit", help='Arguments to change first, as JSON: \'{"note": "…"}\''),
    ] = None,
    approval: Approval = None,
    log: Log = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Approve the pending write as it was shown, or as edited."""
    from followup_agent.cli import runs

    return runs.approve(thread, edit, approval, log=log, as_json=as_json, home=home)


@app.command()
def reject(
    thread: Thread,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the record.")] = "",
    approval: Approval = None,
    log: Log = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Reject the pending write and go on without it."""
    from followup_agent.cli import runs

    return runs.reject(thread, reason, approval, log=log, as_json=as_json, home=home)


@app.command()
def cancel(thread: Thread, log: Log = None, as_json: Json = False, home: Home = None) -> int:
    """Drop the pending question or approval and end the run."""
    from followup_agent.cli import runs

    return runs.cancel(thread, log=log, as_json=as_json, home=home)


@app.command()
def resume(thread: Thread, log: Log = None, as_json: Json = False, home: Home = None) -> int:
    """Go on with a run that was cut off: killed, stopped, or out of disk."""
    from followup_agent.cli import runs

    return runs.resume(thread, log=log, as_json=as_json, home=home)


@app.command()
def show(
    thread: Thread,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="List the stored states instead.")
    ] = False,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """One run as a timeline: step, reason, call, outcome, new facts, time."""
    from followup_agent.cli import runs

    return runs.show(thread, checkpoints=checkpoints, as_json=as_json, home=home)


@app.command()
def fork(
    thread: Thread,
    at: Annotated[
        int, typer.Option("--at", min=0, help="After this step; 0 is before the first decision.")
    ],
    edit: Annotated[
        str | None,
        typer.Option("--edit", help="State to change first, as JSON: '{\"max_steps\": 12}'"),
    ] = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """A new thread with a run as it was after a step; `followup resume` goes on with it."""
    from followup_agent.cli import runs

    return runs.fork(thread, at, edit, as_json=as_json, home=home)


OlderThan = Annotated[
    str, typer.Option("--older-than", help="Age since the end of the run: 30d, 12h, 45m.")
]


@threads.callback()
def threads_list(context: typer.Context, as_json: Json = False, home: Home = None) -> int:
    """What ran, and what waits; `export` and `prune` old threads."""
    if context.invoked_subcommand is not None:
        return 0
    from followup_agent.cli import lists

    return lists.threads(as_json=as_json, home=home)


@threads.command("export")
def threads_export(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="THREAD", help="Threads. Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write. Default: stdout.")
    ] = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Threads as JSON lines: run, timeline, and what was done downstream."""
    from followup_agent.cli import runs

    return runs.export(names or [], out=out, as_json=as_json, home=home)


@threads.command("prune")
def threads_prune(older_than: OlderThan, as_json: Json = False, home: Home = None) -> int:
    """Forget threads that have ended; one that waits or was cut off is never among them."""
    from followup_agent.cli import runs

    return runs.prune(older_than, as_json=as_json, home=home)


@app.command()
def tools(as_json: Json = False, home: Home = None) -> int:
    """The registered tools with their JSON schemas."""
    from followup_agent.cli import lists

    return lists.tools(as_json=as_json)


@app.command()
def doctor(
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Try the configured model out: six small requests to its server."
        ),
    ] = False,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Check the installation: each setting, where it came from, and what is wrong with it."""
    from followup_agent.cli import doctor as checks

    return checks.doctor(probe=probe, as_json=as_json, home=home)


@app.command()
def studio(
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1.")] = 2024,
    open_browser: Annotated[
        bool, typer.Option("--browser", help="Open LangGraph Studio in the browser.")
    ] = False,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Start the LangGraph development server for Studio."""
    from followup_agent.cli import studio as server

    return server.studio(port=port, open_browser=open_browser, home=home)


@data.command("sample")
def data_sample(
    customers: Annotated[int, typer.Option("--customers", min=3, help="How many customers.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another company.")] = 1,
    as_of: AsOf = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace imported data as well.")
    ] = False,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Fill the business database with a made-up company."""
    from followup_agent.cli import data as filling

    return filling.sample(
        customers=customers, seed=seed, as_of=as_of, replace=replace, as_json=as_json, home=home
    )


@data.command("import")
def data_import(
    customers: Annotated[
        Path | None, typer.Option("--customers", help="File of customers.")
    ] = None,
    activity: Annotated[
        Path | None, typer.Option("--activity", help="File of activity events.")
    ] = None,
    orders: Annotated[Path | None, typer.Option("--orders", help="File of orders.")] = None,
    tickets: Annotated[Path | None, typer.Option("--tickets", help="File of tickets.")] = None,
    mapping: Annotated[
        Path | None, typer.Option("--map", help="Mapping file, for files of another form.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--from", help="Folder of the mapping's files. Default: the mapping's own."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", help="Zone of times without one. Default: FOLLOWUP_TIMEZONE."),
    ] = None,
    time_format: Annotated[
        str | None, typer.Option("--time-format", help="Form of times, e.g. '%d/%m/%Y %H:%M'.")
    ] = None,
    decimal: Annotated[
        str | None, typer.Option("--decimal", help="What stands before cents: . or ,")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="E.g. cp1252. UTF-8 and GB18030 are found out.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", help="Between cells. Default: found out.")
    ] = None,
    rejects: Annotated[
        Path | None, typer.Option("--rejects", help="CSV file to keep the bad rows in.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="One bad row refuses the whole import.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also when most of what is there goes.")
    ] = False,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Bring the business database in step with an export: CSV or Parquet files."""
    from followup_agent.cli import data as filling

    files = {
        "customers": customers,
        "activity_events": activity,
        "orders": orders,
        "tickets": tickets,
    }
    return filling.load(
        files,
        mapping=mapping,
        folder=folder,
        timezone=timezone,
        time_format=time_format,
        decimal=decimal,
        encoding=encoding,
        delimiter=delimiter,
        rejects=rejects,
        strict=strict,
        replace=replace,
        as_json=as_json,
        home=home,
    )


@data.command("check")
def data_check(as_of: AsOf = None, as_json: Json = False, home: Home = None) -> int:
    """Say what is wrong with the business data; exits with 1 when anything is."""
    from followup_agent.cli import data as filling

    return filling.check(as_of=as_of, as_json=as_json, home=home)


@data.command("map")
def data_map(
    files: Annotated[list[Path], typer.Argument(help="The files of an export, CSV or Parquet.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the mapping here. Default: to stdout.")
    ] = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Propose a mapping file for an export, to be read and edited."""
    from followup_agent.cli import data as filling

    return filling.propose(files, out=out, as_json=as_json, home=home)


@policy.command("show")
def policy_show(
    segment: Annotated[
        str | None, typer.Option("--segment", help="As it holds for this segment.")
    ] = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Print the judgement policy: signals, points, thresholds."""
    from followup_agent.cli import policy as policies

    return policies.show(segment=segment, as_json=as_json, home=home)


@policy.command("check")
def policy_check(
    file: Annotated[
        Path | None, typer.Argument(help="A policy file. Default: the one that is set.")
    ] = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Validate a policy file, and say where it differs from the package's."""
    from followup_agent.cli import policy as policies

    return policies.check(file, as_json=as_json, home=home)


@policy.command("explain")
def policy_explain(
    user: Annotated[str, typer.Argument(help="Customer id.")],
    as_of: AsOf = None,
    as_json: Json = False,
    home: Home = None,
) -> int:
    """Show how each point of one customer's score arose, and what would change the verdict."""
    from followup_agent.cli import policy as policies

    return policies.explain(user, as_of=as_of, as_json=as_json, home=home)


Dataset = Annotated[str, typer.Option("--dataset", help="Name of the LangSmith dataset.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Only cases with this tag, language or tier; may be repeated."),
]
Folder = Annotated[
    Path | None, typer.Option("--cases", help="Folder of your own cases. Default: the package's.")
]


def _need_evals() -> None:
    """ConfigurationError when the extra is not installed."""
    from importlib.util import find_spec

    from followup_agent.service.errors import ConfigurationError

    missing = [name for name in ("jinja2", "openevals", "scipy", "yaml") if not find_spec(name)]
    if missing:
        raise ConfigurationError(
            f"evals need the extra ({', '.join(missing)} is missing): "
            "pip install 'followup-agent[evals]'"
        )


@evals.command("run")
def eval_run(
    planner: Annotated[
        str | None, typer.Option("--planner", help="rules or llm. Default: rules.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Chat model to judge.")] = None,
    tag: Tags = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Only this case; may be repeated.")
    ] = None,
    cases: Folder = None,
    gates: Annotated[
        Path | None, typer.Option("--gates", help="Another gates.toml than the package's.")
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, max=1000, help="Times each case is run.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Cases under way at once.")
    ] = 4,
    laws: Annotated[
        bool, typer.Option("--laws", help="Check the metamorphic laws as well.")
    ] = False,
    planner_only: Annotated[
        bool, typer.Option("--planner-only", help="Decide in recorded states; no tool is run.")
    ] = False,
    only_errored: Annotated[
        Path | None,
        typer.Option(
            "--only-errored", help="Only cases that a busy server stopped in this report."
        ),
    ] = None,
    langsmith: Annotated[
        bool, typer.Option("--langsmith", help="As an experiment on the LangSmith dataset.")
    ] = False,
    upload: Annotated[
        bool,
        typer.Option(help="With --langsmith: --no-upload uses its runner and sends nothing."),
    ] = True,
    dataset: Dataset = "followup-agent",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the whole report to this file (JSON).")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write the report to this file as a page.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run the cases and report; exits with 1 below the gates."""
    _need_evals()
    from followup_agent.cli import evals as instrument

    return instrument.run(
        planner=planner,
        model=model,
        tags=tag or [],
        names=case or [],
        folder=cases,
        gates=gates,
        repeat=repeat,
        concurrency=concurrency,
        laws=laws,
        alone=planner_only,
        only_errored=only_errored,
        langsmith=dataset if langsmith else None,
        upload=upload,
        out=out,
        page=page,
        as_json=as_json,
    )


@evals.command("list")
def eval_list(tag: Tags = None, cases: Folder = None, as_json: Json = False) -> int:
    """The cases, one line each."""
    _need_evals()
    from followup_agent.cli import evals as instrument

    return instrument.listing(tags=tag or [], folder=cases, as_json=as_json)


@evals.command("compare")
def eval_compare(
    first: Annotated[Path, typer.Argument(help="A report that `eval run --out` has written.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: Json = False,
) -> int:
    """What got better, what got worse, and whether that may be chance."""
    _need_evals()
    from followup_agent.cli import evals as instrument

    return instrument.comparing(first, second, as_json=as_json)


@evals.command("push")
def eval_push(
    dataset: Dataset = "followup-agent",
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the examples whose case is gone.")
    ] = False,
    cases: Folder = None,
    as_json: Json = False,
) -> int:
    """Bring a LangSmith dataset in step with the cases."""
    _need_evals()
    from followup_agent.cli import langsmith

    return langsmith.push(dataset, remove=remove, folder=cases, as_json=as_json)


@evals.command("pull")
def eval_pull(
    project: Annotated[str, typer.Option("--project", help="Tracing project to read.")],
    out: Annotated[Path, typer.Option("--out", help="File of cases to write (YAML).")],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Runs to look at.")] = 100,
    as_json: Json = False,
) -> int:
    """Make cases from annotated runs."""
    _need_evals()
    from followup_agent.cli import langsmith

    return langsmith.pull(project, out=out, limit=limit, as_json=as_json)


@evals.command("record")
def eval_record(
    out: Annotated[Path, typer.Argument(help="File of recorded states to write (.jsonl.gz).")],
    cases: Folder = None,
    as_json: Json = False,
) -> int:
    """Record the states of all cases, for --planner-only."""
    _need_evals()
    from followup_agent.cli import evals as instrument

    return instrument.record_states(out=out, folder=cases, as_json=as_json)
