"""The list of cases in a Markdown file, between two marks: `python -m followup_agent.evals.catalogue FILE`."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from followup_agent.evals.cases import Case, load_cases
from followup_agent.service.errors import InvalidOption

BEGIN, END = "<!-- catalogue: begin -->", "<!-- catalogue: end -->"


def catalogue(cases: Sequence[Case]) -> str:
    """The cases as a table, with how many there are of each kind."""
    tags = Counter(tag for case in cases for tag in case.tags)
    languages = Counter(case.language for case in cases)
    tiers = Counter(case.tier for case in cases)
    lines = [
        f"{len(cases)} cases: {languages['zh']} Chinese, {languages['en']} English; "
        f"{tiers['baseline']} baseline, {tiers['frontier']} frontier.",
        "",
        "By tag: " + ", ".join(f"{tag} {count}" for tag, count in sorted(tags.items())) + ".",
        "",
        "| case | tags | asked |",
        "|---|---|---|",
    ]
    for case in cases:
        asked = " ".join(case.input.split()).replace("|", "\\|").replace("<", "&lt;")
        shown = asked if len(asked) <= 90 else asked[:89] + "…"
        mark = " (frontier)" if case.tier == "frontier" else ""
        lines.append(f"| {case.name}{mark} | {', '.join(case.tags)} | {shown} |")
    return "\n".join(lines)


def renew(text: str, cases: Sequence[Case]) -> str:
    """The Markdown text with the list as it is now; InvalidOption without the two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidOption(f"the file has no place for the list: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{catalogue(cases)}\n{END}{after}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renew(path.read_text(encoding="utf-8"), load_cases()), encoding="utf-8")
