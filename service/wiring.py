"""Make a run's dependencies from the settings: database, tools, planner, log."""

import inspect
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.tables import customers
from followup_agent.goals.ids import IdPattern, learn_pattern
from followup_agent.graph.context import AgentContext, RunOptions, utc_now
from followup_agent.judgement.policy import Policy, load_policy
from followup_agent.planners import Planner
from followup_agent.planners.rules import RulePlanner
from followup_agent.runs.database import RunsDatabase, runs_url
from followup_agent.runs.leases import Leases
from followup_agent.runs.ledger import SqlLedger
from followup_agent.service.data import customer_database
from followup_agent.service.errors import ConfigurationError, InvalidOption
from followup_agent.service.home import make_home
from followup_agent.service.logs import JsonLog
from followup_agent.service.settings import (
    PREFIX,
    Settings,
    http_url,
    is_database_url,
    load_settings,
    openai_value,
    shown_url,
)
from followup_agent.state import Limits
from followup_agent.tasks.system import TaskSystem
from followup_agent.tasks.table import TaskTable
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import DefinitionError, ToolDefinition
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import ToolRunner

if TYPE_CHECKING:
    from followup_agent.planners.chat import Chat

IDS_TO_LEARN_FROM = 500
"""Customer ids looked at to learn their form: so many from either end of their order."""


def open_log(settings: Settings, *, to_stderr: bool = False) -> JsonLog:
    """The event log in the home, or stderr; ConfigurationError when the home cannot be written."""
    path = settings.home / "logs" / "followup.jsonl"
    try:
        return JsonLog(None if to_stderr else path)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror}; choose another folder with --home or "
            f"{PREFIX}HOME"
        ) from error


def make_context(
    settings: Settings,
    *,
    log: JsonLog,
    tools: Iterable[ToolDefinition] = (),
    planner: Planner | None = None,
    clock: Callable[[], datetime] = utc_now,
    leases: Leases | None = None,
    runs: RunsDatabase,
) -> AgentContext:
    """Everything the nodes need. Blocks (it reads the database): not for the event loop.

    `tools` come on top of the built-in ones. `leases` None: the host sees to one writer per thread.
    ConfigurationError for what cannot be used.
    """
    policy = load_policy(settings.policy)
    database = customer_database(settings, policy).check()
    ids = customer_ids(settings, database)
    try:
        registry = ToolRegistry([*BUILT_IN, *tools])
    except DefinitionError as error:
        raise ConfigurationError(str(error)) from error
    if planner is not None and not (
        isinstance(getattr(planner, "name", None), str)
        and inspect.iscoroutinefunction(getattr(planner, "decide", None))
        and not isinstance(planner, type)
    ):
        raise ConfigurationError(
            f"{planner!r} is no planner: it needs a name and `async def decide(self, state)`"
        )
    if planner is None:
        planner = make_planner(settings, policy=policy, registry=registry, ids=ids, clock=clock)
    return AgentContext(
        planner=planner,
        tools=ToolRunner(registry, log.error),
        customers=database,
        policy=policy,
        ids=ids,
        log=log,
        timezone=settings.zone,
        clock=clock,
        approval_lifetime=timedelta(hours=settings.approval_hours),
        approver=settings.approver,
        ledger=SqlLedger(runs, leases),
        tasks=task_system(settings, database),
        tenant=settings.tenant,
        budget=budget_of(settings),
        options=RunOptions(max_steps=settings.max_steps, user=settings.user),
    )


def task_system(settings: Settings, database: CustomerDatabase) -> TaskSystem:
    """Where tasks go: the task system or database that is set, else beside the business data."""
    if settings.tasks_url is None:
        return TaskTable(database)
    if is_database_url(settings.tasks_url):
        return TaskTable(CustomerDatabase(settings.tasks_url, may_be_new=True))
    from followup_agent.tasks.http import TaskServer

    return TaskServer(settings.tasks_url)


def customer_ids(settings: Settings, database: CustomerDatabase) -> IdPattern:
    """The form of customer ids: as set, else learned from the database."""
    try:
        with database.reader.connect() as connection:
            known = [
                customer_id
                for order in (customers.c.customer_id, customers.c.customer_id.desc())
                for customer_id in connection.execute(
                    select(customers.c.customer_id).order_by(order).limit(IDS_TO_LEARN_FROM)
                ).scalars()
            ]
    except SQLAlchemyError as error:
        raise ConfigurationError(database.why(error)) from error
    learned = learn_pattern(str(customer_id) for customer_id in known)
    if settings.customer_id_pattern is None:
        return learned
    matching = [i for i in known if re.fullmatch(settings.customer_id_pattern, str(i))]
    return IdPattern(settings.customer_id_pattern, (matching or [learned.example])[0])


def choose_planner(settings: Settings) -> str:
    """Which planner decides and why, for stderr; ConfigurationError when none may.

    A configured model that cannot be used is never replaced by rules without a word.
    """
    if settings.planner == "rules":
        return "planner: the built-in rules decide, as asked"
    if uses_model(settings):
        why = "as asked" if settings.planner == "llm" else "because it is configured"
        url = openai_value("BASE_URL")
        try:
            if "@" in http_url(url or "https://api.openai.com/v1"):
                raise ValueError("not to hold a user or a password: use OPENAI_API_KEY")
        except ValueError as error:
            raise ConfigurationError(f"OPENAI_BASE_URL is {error}") from error
        where = shown_url(url) if url else "OpenAI"
        return f"planner: the model {settings.model} at {where} decides, {why}"
    if settings.planner == "llm":
        lacking = (
            "FOLLOWUP_MODEL" if settings.model is None else "OPENAI_API_KEY or OPENAI_BASE_URL"
        )
        raise ConfigurationError(
            f"no model is configured: set {lacking}, or use --planner rules "
            f"(or {PREFIX}PLANNER=rules)"
        )
    return (
        "planner: the built-in rules decide, because no model is configured "
        f"(OPENAI_API_KEY or OPENAI_BASE_URL, and {PREFIX}MODEL)"
    )


def uses_model(settings: Settings) -> bool:
    """Whether a model is to decide: asked for, or configured and not ruled out."""
    return settings.planner != "rules" and settings.model_configured


def make_planner(
    settings: Settings,
    *,
    policy: Policy,
    registry: ToolRegistry,
    ids: IdPattern,
    clock: Callable[[], datetime] = utc_now,
) -> Planner:
    """The planner of these settings; ConfigurationError when it cannot be made.

    No connection is opened. What talks to a model is imported only where one decides.
    """
    choose_planner(settings)
    if not uses_model(settings):
        return RulePlanner(policy, registry.names(), ids.example)
    from followup_agent.planners.forms import Forms
    from followup_agent.planners.methods import Methods
    from followup_agent.planners.model import ModelPlanner
    from followup_agent.planners.prompt import PromptMaker

    forms = Forms(registry)
    chat = make_chat(settings)
    return ModelPlanner(
        chat,
        forms,
        PromptMaker(forms, ids, settings.zone, max_tokens=settings.max_prompt_tokens).check(),
        Methods(settings.output_method, endpoint_name(settings), settings.home, clock),
        policy,
        guidance=settings.guidance,
    )


def endpoint_name(settings: Settings) -> str:
    """The model and where it is, as its output method is remembered under."""
    return f"{settings.model} at {shown_url(openai_value('BASE_URL'))}"


def make_chat(settings: Settings) -> "Chat":
    """What talks to the configured model; ConfigurationError for a budget without a price."""
    from pydantic import SecretStr

    from followup_agent.planners.chat import Chat, Endpoint
    from followup_agent.planners.limiter import RateLimiter
    from followup_agent.planners.usage import load_prices

    model = settings.model or ""
    table = load_prices(settings.prices)
    price = table.price_of(model)
    if settings.budget_cost is not None and price is None:
        raise ConfigurationError(
            f"{PREFIX}BUDGET_COST is set, but {model} has no price: name a price table by "
            f"{PREFIX}PRICES, or use {PREFIX}BUDGET_TOKENS"
        )
    temperature = settings.temperature
    if temperature is None and not re.match(r"o[0-9]|gpt-5", model):
        temperature = 0.0  # reasoning models take their own only
    endpoint = Endpoint(
        model=model,
        base_url=openai_value("BASE_URL"),
        api_key=SecretStr(openai_value("API_KEY") or "not-needed"),
        temperature=temperature,
        max_output_tokens=settings.max_output_tokens,
        timeout_s=settings.model_timeout_s,
    )
    limiter = RateLimiter(settings.model_calls_per_minute, settings.model_tokens_per_minute)
    return Chat(endpoint, price=price, limiter=limiter)


def budget_of(settings: Settings) -> Limits:
    """What one run may use."""
    return Limits(
        deadline_s=settings.deadline_s,
        model_calls=settings.budget_model_calls,
        tokens=settings.budget_tokens,
        cost=settings.budget_cost,
    )


def check_thread_id(thread_id: str) -> str:
    """The id when it can be one: 1 to 200 printable characters without outer blanks."""
    if not isinstance(thread_id, str) or not 1 <= len(thread_id) <= 200:
        raise InvalidOption("a thread id has 1 to 200 characters")
    if thread_id != thread_id.strip() or not thread_id.isprintable() or thread_id[0] == "-":
        raise InvalidOption(
            f"thread id {thread_id!r} has blanks around it, control characters, or a leading '-'"
        )
    return thread_id


def context_from_environment() -> AgentContext:
    """The context of the graph that LangGraph's server runs."""
    settings = load_settings()
    make_home(settings.home)
    log = open_log(settings)
    log.attach()
    return make_context(settings, log=log, runs=RunsDatabase(runs_url(settings)))
