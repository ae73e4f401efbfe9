"""`followup eval`, from outside."""

import json
from pathlib import Path
from typing import Any

import pytest

from followup_agent.cli.start import FAILED, OK, USAGE, _run

pytestmark = pytest.mark.slow
WRONG = """
- name: wrong-zh
  input: 帮我判断 user_456 最近是否需要重点跟进
  language: zh
  tags: [mine]
  expected_needs_followup: true
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A folder with one case that cannot be right."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "mine.yaml").write_text(WRONG, encoding="utf-8")
    return tmp_path / "cases"


def test_a_report_has_the_documented_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["eval", "run", "--tag", "seed", "--json"]) == OK
    document = json.loads(capsys.readouterr().out)
    assert {"cases", "passed", "failed", "errored", "evals", "failures"} <= set(document)
    assert (document["cases"], document["passed"]) == (4, 4)
    assert set(document["evals"]["tool_selection"]) == {"score", "low", "high", "n"}
    assert document["subject"]["planner"] == "rules"


def test_below_the_gate_it_exits_with_one_and_says_why(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["eval", "run", "--cases", str(wrong)]) == FAILED
    text = capsys.readouterr().out
    assert "✗ wrong-zh (baseline) task_completion: needs_followup is False, expected True" in text
    assert "    get_open_tickets(user_id=user_456)" in text
    assert "below the gate: task_completion on baseline cases: 0.000 is below 1" in text


def test_the_files_it_writes_are_utf8_and_can_be_compared(
    wrong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    arguments = ["eval", "run", "--cases", str(wrong), "--out", str(report), "--html", str(page)]
    assert _run(arguments) == FAILED
    assert "帮我判断" in report.read_text(encoding="utf-8")
    assert "暂不需要重点跟进" in page.read_text(encoding="utf-8")
    capsys.readouterr()
    assert _run(["eval", "compare", str(report), str(report), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["evals"]["all"]["both_fail"] == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "--tag", "nothing"], "no case has the tag 'nothing'; the tags are: "),
        (["run", "--case", "nobody"], "there is no case 'nobody'"),
        (["run", "--planner", "llm"], "no model is configured"),
        (["run", "--model", "gpt-x"], "OPENAI_API_KEY or OPENAI_BASE_URL"),
        (["run", "--planner", "magic"], "FOLLOWUP_PLANNER"),
        (["run", "--out", "no/such/folder/report.json"], "cannot be written"),
        (["run", "--cases", "no-folder"], "there are no cases"),
        (["run", "--gates", "no.toml"], "no.toml"),
        (["run", "--only-errored", "no.json"], "no.json: No such file"),
        (["run", "--repeat", "0"], "--repeat"),
        (["run", "--planner-only", "--laws"], "no --laws"),
        (["run", "--planner-only", "--out", "x.json"], "no --out"),
        (["compare", "no.json", "no.json"], "no.json: No such file"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert _run(["eval", *arguments]) == USAGE
    said = capsys.readouterr()
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_file_that_is_no_report_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    assert _run(["eval", "compare", str(tmp_path / "x.json"), str(tmp_path / "x.json")]) == USAGE
    assert "not a report" in capsys.readouterr().err


def test_only_what_a_busy_server_stopped_is_run_again(
    wrong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    _run(["eval", "run", "--tag", "seed", "--out", str(out)])
    capsys.readouterr()
    assert _run(["eval", "run", "--only-errored", str(out)]) == USAGE
    assert "no case of this report was stopped by a busy server" in capsys.readouterr().err
    document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    document["results"]["seed-orders-zh"][0]["infrastructure"] = True
    out.write_text(json.dumps(document), encoding="utf-8")
    assert _run(["eval", "run", "--only-errored", str(out), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["cases"] == 1


def test_the_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["eval", "list", "--tag", "seed"]) == OK
    text = capsys.readouterr().out
    assert "seed-priority-zh" in text
    assert text.endswith("4 cases\n")
    assert _run(["eval", "list", "--tag", "seed", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)[0]["input"].startswith("帮我判断")


def test_states_of_cases_that_fail_are_not_recorded(
    wrong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "states.jsonl.gz"
    assert _run(["eval", "record", str(out), "--cases", str(wrong)]) == USAGE
    assert "nothing to record" in capsys.readouterr().err
    assert not out.exists()


def test_the_planner_alone_is_judged_in_recorded_states(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(["eval", "run", "--planner-only", "--tag", "zh", "--json"]) == OK
    document = json.loads(capsys.readouterr().out)
    assert document["states"] > 100
    assert document["failures"] == []
