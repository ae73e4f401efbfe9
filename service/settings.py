"""Settings: from options, the environment (`FOLLOWUP_…`), a `.env` file, or a default."""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from dotenv import dotenv_values
from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from followup_agent.goals.limits import (
    DEFAULT_MAX_STEPS,
    MAX_PROMPT_TOKENS,
    MAX_STEPS_CEILING,
    Guidance,
    OutputMethod,
)
from followup_agent.service.errors import ConfigurationError

PREFIX = "FOLLOWUP_"


def known_zone(name: str) -> str:
    """The name when it is a time zone's; ValueError with an example when it is none."""
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"{name!r} is not a time zone; write e.g. Asia/Shanghai or UTC") from error
    return name


def _known_regex(pattern: str) -> str:
    pattern = pattern.removeprefix("^").removesuffix("$")  # ids stand within a sentence
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def http_url(url: str) -> str:
    """The URL when it is an HTTP address; ValueError with an example when it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an HTTP address; write e.g. https://host.example.com/path")
    return url


def _tasks_url(url: str) -> str:
    """An HTTP address, or a database URL."""
    return url if is_database_url(url) else http_url(url)


def is_database_url(url: str) -> bool:
    """Whether it names a database rather than a server over HTTP."""
    return urlsplit(url).scheme.split("+")[0] in ("sqlite", "postgresql", "mysql", "mariadb")


def shown_url(url: str | None) -> str:
    """A model's address for people and logs: no user, no password, no query; OpenAI's for None."""
    parts = urlsplit(url or "https://api.openai.com/v1")
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _some_text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text.strip()


class Settings(BaseSettings):
    """Every setting of the product. Unknown `FOLLOWUP_` names are reported by `followup doctor`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    home: Path = Field(Path(".followup"), description="Folder of the databases and logs.")
    customers_url: str | None = Field(
        None, description="Business data, as a SQLAlchemy URL. Default: customers.db in the home."
    )
    runs_url: str | None = Field(
        None,
        description="Checkpoints, leases and effect ledger: sqlite:///FILE, or "
        "postgresql+psycopg://USER@HOST/NAME. Default: runs.db in the home.",
    )
    customers_connections: int = Field(
        16, ge=1, le=200, description="Connections to the business data that reads share."
    )
    query_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Seconds after which the database stops a query."
    )
    policy: Path | None = Field(
        None, description="The company's own judgement policy (TOML): what differs from ours."
    )
    tasks_url: Annotated[str, AfterValidator(_tasks_url)] | None = Field(
        None,
        description="Task system over HTTP, or a database URL for the table followup_tasks. "
        "Default: that table beside the business data.",
    )
    tenant: str = Field(
        "default",
        min_length=1,
        max_length=100,
        description="The company, where several share one task system: part of a task's identity.",
    )
    timezone: Annotated[str, AfterValidator(known_zone)] = Field(
        "UTC", description="Time zone in which days begin and end."
    )
    customer_id_pattern: Annotated[str, AfterValidator(_known_regex)] | None = Field(
        None, description="Regular expression of customer ids. Default: learned from the database."
    )
    planner: Literal["rules", "llm", "auto"] = Field(
        "auto", description="Which planner decides: rules, llm, or auto."
    )
    max_steps: int = Field(
        DEFAULT_MAX_STEPS, ge=1, le=MAX_STEPS_CEILING, description="Decisions a run may take."
    )
    user: str = Field("user", min_length=1, description="Who asks and approves; kept with a task.")
    model: Annotated[str, AfterValidator(_some_text)] | None = Field(
        None, description="Name of the chat model, for the llm planner."
    )
    output_method: OutputMethod | Literal["auto"] = Field(
        "auto",
        description="How the model replies: json_schema, function_calling, json_object, prompt; "
        "auto finds out.",
    )
    guidance: Guidance = Field(
        "free",
        description="free, or narrow: only what makes sense in a round is offered to the model.",
    )
    model_timeout_s: float = Field(
        60.0, gt=0, le=3600, description="Seconds one model call may take, retries included."
    )
    max_output_tokens: int = Field(
        1000, ge=50, le=100_000, description="Tokens one reply may have."
    )
    max_prompt_tokens: int = Field(
        MAX_PROMPT_TOKENS,
        ge=2_000,
        le=1_000_000,
        description="Estimated tokens one prompt may have.",
    )
    temperature: float | None = Field(
        None, ge=0, le=2, description="Default: 0; not sent to reasoning models."
    )
    model_calls_per_minute: float | None = Field(
        None, gt=0, description="Model calls a minute, for this process."
    )
    model_tokens_per_minute: float | None = Field(
        None, gt=0, description="Model tokens a minute, for this process."
    )
    deadline_s: float | None = Field(
        None, gt=0, description="Seconds a run may work; waiting for a person does not count."
    )
    budget_model_calls: int | None = Field(None, ge=1, description="Model calls of one run.")
    budget_tokens: int | None = Field(
        200_000, ge=1, description="Tokens of one run, input and output together."
    )
    budget_cost: float | None = Field(
        None, gt=0, description="Cost of one run, in the currency of the price table."
    )
    prices: Path | None = Field(None, description="Price table (TOML) in place of the package's.")
    approver: str | None = Field(
        None, description="Who may approve a write. Default: whoever uses the agent."
    )
    approval_hours: float = Field(
        24.0, gt=0, le=8760, description="How long an approval may be given."
    )

    @cached_property
    def customers_database_url(self) -> str:
        """Where the business data is."""
        return self.customers_url or f"sqlite:///{self.home / 'customers.db'}"

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone object."""
        return ZoneInfo(self.timezone)

    @property
    def model_configured(self) -> bool:
        """Whether a chat model could be called (contract: key or base URL, and a model's name)."""
        return bool(self.model and (openai_value("API_KEY") or openai_value("BASE_URL")))


def openai_value(name: Literal["API_KEY", "BASE_URL"]) -> str | None:
    """`OPENAI_…` from the environment, else from `.env`; None when it is empty or absent."""
    variable = f"OPENAI_{name}"
    if value := os.environ.get(variable):
        return value
    return (dotenv_values(".env").get(variable) or None) if Path(".env").is_file() else None


def load_settings(**overrides: Any) -> Settings:
    """Settings with these overrides (None: not given); ConfigurationError names the wrong one."""
    unknown = sorted(overrides.keys() - Settings.model_fields.keys())
    if unknown:
        raise ConfigurationError(
            f"there is no option {unknown[0]!r}; the options are: {', '.join(Settings.model_fields)}"
        )
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = str(problem["loc"][0])
        raise ConfigurationError(
            f"setting {PREFIX}{name.upper()} (or its option) is {problem['input']!r}: "
            f"{problem['msg'].removeprefix('Value error, ')}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(".env is not UTF-8 text: save it as UTF-8") from error
