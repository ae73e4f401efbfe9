"""What is generated is as it would be generated now."""

import json
import re
from pathlib import Path

from followup_agent.evals.cases import case_schema, load_cases
from followup_agent.evals.catalogue import catalogue, renew
from followup_agent.evals.evaluate import evaluate
from followup_agent.evals.laws import LAWS
from followup_agent.evals.scorers import SCORERS

FOLDER = Path(__file__).parents[1]
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_catalogue_is_that_of_the_cases() -> None:
    """Else run `python -m followup_agent.evals.catalogue evals/README.md`."""
    cases = load_cases()
    assert renew(README, cases) == README
    assert catalogue(cases).count("\n| ") == len(cases) + 1


def test_the_schema_is_that_of_a_case() -> None:
    known = json.loads((FOLDER / "cases.schema.json").read_text(encoding="utf-8"))
    assert known == case_schema()


def test_every_evaluator_and_every_law_is_defined() -> None:
    for name in SCORERS:
        assert f"**{name}**" in README, name
    (table,) = re.findall(r"\| law \|.*?\n\n", README, re.DOTALL)
    for name in LAWS:
        assert name in table, name


def test_the_case_of_the_page_passes(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "page.yaml").write_text(block, encoding="utf-8")
    (case,) = load_cases(tmp_path)
    report = evaluate([case])
    assert report.failures == []
