"""Evals: fixed cases, run through the real graph on a real database, and scored with reasons.

    cases.py ─▶ subject.py ─▶ scorers.py ─▶ report.py ─▶ table, HTML, gates
    (YAML)      (an Episode)   (Scores)      (Report)

`README.md` defines each evaluator; `cases/` holds the cases, `worlds.yaml` the companies they are
asked about.
"""
