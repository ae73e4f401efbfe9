"""The report as one HTML page: no script, nothing loaded from elsewhere, every text escaped."""

from importlib import resources

from jinja2 import Environment, StrictUndefined

from followup_agent.evals.report import Report


def html(report: Report) -> str:
    """The page."""
    text = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text).render(report=report)
