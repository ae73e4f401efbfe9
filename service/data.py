"""The business data that the settings name."""

from followup_agent.customers.database import CustomerDatabase
from followup_agent.judgement.policy import Policy
from followup_agent.service.settings import Settings


def customer_database(settings: Settings, policy: Policy) -> CustomerDatabase:
    """The business data of these settings; nothing is connected yet."""
    return CustomerDatabase(
        settings.customers_database_url,
        connections=settings.customers_connections,
        query_timeout_s=settings.query_timeout_s,
        stale_after_days=policy.sources.model_dump(),
    )
