"""A model's draft stands only where the record of a real run bears it out."""

import asyncio
import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import APPROVE, SHANGHAI, TASK_GOAL, Harness, Scripted, fill, finish, replaced, tool

from followup_agent.answers.grounding import KEPT_CHARS, USED_CHARS, view_draft
from followup_agent.customers.database import CustomerDatabase
from followup_agent.goals.ids import IdPattern
from followup_agent.state import AgentState, ModelView
from followup_agent.tools.definition import ToolRefused

QUESTIONS = {"zh": "判断 {} 最近是否需要重点跟进", "en": "Does {} need priority follow-up?"}
TASK_GOALS = {"zh": TASK_GOAL, "en": "Create a follow-up task for user_123"}


class Runs(dict[str, AgentState]):
    """The last state of each run, by what it was about and its language."""

    def __repr__(self) -> str:
        """Short: hypothesis prints what a test is given."""
        return f"Runs({list(self)})"


CUSTOMERS = {"quiet": "user_123", "healthy": "user_456", "new": "user_789"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Real runs on one company."""
    database = fill(tmp_path_factory.mktemp("company") / "customers.db")
    yield asyncio.run(_run_all(database))
    database.close()


async def _run_all(database: CustomerDatabase) -> Runs:
    async def refuse(args: Any) -> Any:
        raise ToolRefused("down")

    broken = [replaced("get_open_tickets", refuse)]
    states: Any = Runs()
    for language, question in QUESTIONS.items():
        for name, customer in CUSTOMERS.items():
            states[f"{name} {language}"] = await Harness(database).ask(question.format(customer))
        states[f"open {language}"] = await Harness(database, tools=broken).ask(
            question.format("user_456")
        )
    states["logins zh"] = await Harness(database).ask("user_456 最近7天登录了几次？")
    two_windows = Scripted(
        *(tool("r", "get_user_activity", user_id="user_123", days=days) for days in (7, 30)),
        finish(),
    )
    states["windows zh"] = await Harness(database, two_windows).ask("user_123 近30天登录了几次")
    for language, goal in TASK_GOALS.items():
        harness = Harness(database)
        await harness.ask(goal)
        states[f"task {language}"] = await harness.resume(APPROVE)
    return states


def view(state: AgentState, draft: str) -> ModelView:
    """The draft against the state's own verdict."""
    return view_draft(draft, state, state["verdict"], IdPattern(), SHANGHAI)


def task_id(state: AgentState) -> str:
    """Of the task that the run has created."""
    return str(state["facts"]["user_123"]["followup_task_id"]["value"])


# --- what is used ---


def test_every_sentence_of_the_evidence_stands_in_its_own_run(
    runs: Runs,
) -> None:
    for state in runs.values():
        summaries = [item["summary"] for item in state["evidence"]]
        joined = ("；" if state["language"] == "zh" else "; ").join(summaries)
        lines = "\n".join(f"- {item['summary']} [{item['id']}]" for item in state["evidence"])
        for draft in (*summaries, joined, lines):
            assert view(state, draft)["disagreements"] == []


def test_the_answer_made_of_the_record_would_stand_as_a_draft(
    runs: Runs,
) -> None:
    for name, state in runs.items():
        answer = state["final_answer"] or ""
        for draft in (answer, *answer.split("\n\n")):
            seen = view(state, draft)
            assert (seen["disagreements"], seen["used"]) == ([], True), name
        if state["verdict"]:
            needs = state["verdict"]["needs_followup"]
            assert view(state, answer)["needs_followup"] is needs


USED = [
    ("quiet zh", "user_123 最近 7 天没有登录，有 1 个紧急工单未处理，最近一次付费在 45 天前，建议重点跟进。"),
    ("quiet zh", "user_123 近7天没有登录和下单，最近一次活跃是 9 天前；有一个紧急工单（T-000001）已打开 3 天，需要重点跟进，优先级高。"),
    ("quiet zh", "该客户已有45天未付费，9天未活跃，且存在1个紧急工单，应尽快安排人工回访。"),
    ("quiet zh", "**结论**：user_123 需要重点跟进。\n1. 近 7 天活跃 0 天，登录 0 次 [e1]\n2. 最近一次付费在 45 天前 [e4]\n3. 未关闭工单 1 个，其中紧急 1 个 [e5]"),
    ("quiet zh", "user_123 需要重点跟进（优先级：高）：一个紧急工单已打开三天，近一周登录零次，四十五天没有付费。"),
    ("quiet zh", "user_123 最后一次活跃在 2026年2月21日，最近一次付费在 1月16日，建议重点跟进。"),
    ("quiet zh", "距上次活跃已有 9 天，距上次付费 45 天，查询了三个来源，风险得分 65/100，需要重点跟进。"),
    ("quiet zh", "user_123 風險較高：1 個緊急工單未處理，45 天未付費，需要跟進。"),
    ("quiet zh", "需要跟进，原因：①9天未活跃；②45天未付费；③1个紧急工单打开3天。"),
    ("quiet zh", "| 项目 | 数值 |\n|---|---|\n| 登录 | 0 次 |\n| 紧急工单 | 1 个 |\n需要重点跟进"),
    ("quiet zh", "本次没有创建跟进任务。建议今天联系客户，先处理紧急工单 T-000001。"),
    ("healthy zh", "user_456 近 7 天活跃 7 天、登录 9 次，付费 680 元，没有未关闭工单，暂不需要重点跟进。"),
    ("healthy zh", "user_456 状态健康：近7天登录九次，下单一笔并付费 680.00 CNY，5 天前付费，无紧急工单，无需跟进。"),
    ("healthy zh", "否，user_456 没有必要重点跟进，优先级为无，今天刚活跃过。"),
    ("new zh", "user_789 是注册 2 天的新客户，从未登录、从未付费，没有未关闭工单，暂不需要跟进，建议发送上手引导。"),
    ("logins zh", "user_456 最近 7 天一共登录了 9 次，活跃 7 天。"),
    ("open zh", "工单查询失败，目前的信息不足以判断 user_456 是否需要重点跟进。"),
    ("quiet en", "user_123 has not logged in for 9 days, last paid 45 days ago and has 1 urgent ticket, so it needs priority follow-up."),
    ("quiet en", "user_123 needs priority follow-up: one urgent ticket (T-000001) has been open for 3 days, there were no logins or orders in the last 7 days, and the last payment was 45 days ago."),
    ("quiet en", "Priority: high. The customer was last active on 20 February 2026 and last paid on January 15th."),
    ("quiet en", "user_123 should be followed up: no activity in the past week, forty-five days without a payment, one open ticket, which is urgent. [e1, e5]"),
    ("quiet en", "Verdict: user_123 needs priority follow-up (high priority). Reasons: (1) one urgent ticket open for 3 days; (2) inactive for 9 days; (3) no payment for 45 days."),
    ("quiet en", "No follow-up task was created. We recommend contacting user_123 today; the urgent ticket should be handled first."),
    ("healthy en", "user_456 is active and has no open tickets, so no priority follow-up is needed."),
    ("healthy en", "user_456 does not need priority follow-up: 9 logins on 7 of the last 7 days, one order of 680 CNY paid, no urgent or open tickets."),
    ("healthy en", "user_456 logged in nine times in the last 7 days and paid ¥680.00; none of the tickets is urgent. There is no need for follow-up."),
    ("new en", "user_789 signed up 2 days ago, has never been active, has never paid and has no open tickets; it does not need priority follow-up. Send the onboarding guide."),
    ("open en", "Tickets could not be read, so it cannot be judged whether user_456 needs follow-up."),
]  # fmt: skip


@pytest.mark.parametrize(("run", "draft"), USED)
def test_honest_prose_is_used(runs: Runs, run: str, draft: str) -> None:
    seen = view(runs[run], draft)
    assert seen["disagreements"] == []
    assert seen["used"]
    assert seen["draft"] == draft


def test_what_a_draft_says_on_follow_up_is_kept_beside_it(runs: Runs) -> None:
    for run, draft, needs in (
        ("quiet zh", "建议重点跟进", True),
        ("healthy zh", "暂不需要人工介入", False),
        ("quiet zh", "近 7 天登录 0 次", None),
        ("quiet en", "Follow-up needed.", True),
        ("healthy en", "It doesn't need follow-up.", False),
        ("healthy en", "You should follow up with user_456.", True),
        ("healthy zh", "是否需要重点跟进：否", False),
    ):
        assert view(runs[run], draft)["needs_followup"] is needs


def test_the_task_of_the_record_may_be_claimed(runs: Runs) -> None:
    for run, draft in (
        ("task zh", "已为 user_123 创建跟进任务 {}，截止 2026-03-03。"),
        ("task zh", "已创建一个跟进任务（{}），截止 3月3日，建议今天联系客户。"),
        ("task en", "A follow-up task ({}) has been created for user_123, due 2026-03-03."),
        ("task en", "I have created follow-up task {}, due March 3, with high priority."),
    ):
        seen = view(runs[run], draft.format(task_id(runs[run])))
        assert (seen["disagreements"], seen["used"]) == ([], True)


# --- what is refused, and why ---

REFUSED = [
    # actions
    ("quiet zh", "已为 user_123 创建跟进任务 task_88，客服将在今天联系", "id task_88"),
    ("quiet zh", "已为 user_123 创建跟进任务 task_88，客服将在今天联系", "claims an action"),
    ("quiet zh", "我已联系客户。", "claims an action"),
    ("quiet zh", "客服昨天已经致电客户。", "claims an action"),
    ("quiet zh", "给客户打了电话。", "claims an action"),
    ("quiet zh", "客服将在今天联系客户。", "claims an action"),
    ("quiet zh", "工单已升级并关闭。", "claims an action"),
    ("quiet en", "A task was created.", "claims an action"),
    ("quiet en", "I've sent an email.", "claims an action"),
    ("quiet en", "The team will reach out tomorrow.", "claims an action"),
    ("quiet en", "Support has been notified.", "claims an action"),
    ("quiet en", "The urgent ticket is now closed.", "claims an action"),
    ("task zh", "已创建跟进任务，并通知客服。", "claims an action"),
    ("task en", "A follow-up task has been created and the customer was contacted.", "claims an action"),
    ("task zh", "本次没有创建跟进任务。", "denies an action"),
    ("task en", "No follow-up task was created.", "denies an action"),
    ("task zh", "已创建 2 个跟进任务。", "number 2 (tasks)"),
    # the verdict
    ("healthy zh", "user_456 需要重点跟进。", "contradicts the verdict (False)"),
    ("healthy en", "user_456 should be followed up.", "contradicts the verdict (False)"),
    ("quiet zh", "user_123 无需跟进。", "contradicts the verdict (True)"),
    ("quiet en", "user_123 doesn't need follow-up.", "contradicts the verdict (True)"),
    ("quiet zh", "目前无法判断 user_123 是否需要跟进。", "contradicts"),
    ("quiet en", "It cannot be judged whether user_123 needs follow-up.", "contradicts"),
    ("quiet zh", "需要重点跟进，也可以说不需要跟进。", "both"),
    ("logins zh", "user_456 不需要跟进。", "contradicts the verdict (None)"),
    ("open en", "user_456 does not need follow-up.", "contradicts the verdict (None)"),
    ("quiet zh", "优先级：低，需要跟进。", "priority"),
    ("quiet en", "This is medium priority.", "priority"),
    # counts
    ("quiet zh", "有三个紧急工单。", "number 三 (urgent tickets)"),
    ("quiet zh", "紧急工单 2 个", "number 2 (urgent tickets)"),
    ("quiet zh", "有贰个紧急工单", "(urgent tickets)"),
    ("quiet zh", "有多个紧急工单", "(urgent tickets)"),
    ("quiet zh", "| 紧急工单 | 3 |", "number 3 (urgent tickets)"),
    ("quiet en", "There are two urgent tickets.", "number two (urgent tickets)"),
    ("quiet en", "The customer logged in twice.", "number twice (logins)"),
    ("quiet zh", "登录 9 次", "number 9 (logins)"),
    ("quiet zh", "最近一次付费在 9 天前", "number 9 (days, last payment)"),
    ("quiet zh", "最近一次付费在 7 天前", "number 7 (days, last payment)"),
    ("quiet en", "Inactive for 45 days.", "number 45 (days, last activity)"),
    ("healthy en", "Active on 3 of the last 7 days", "number 3 (days, active)"),
    ("quiet zh", "今天刚活跃过。", "number 0 (days, last activity)"),
    ("quiet en", "The customer last paid yesterday.", "number 1 (days, last payment)"),
    ("quiet zh", "近两周没有登录", "number 两 (days"),
    ("quiet zh", "流失概率 50%", "number 50 (percent)"),
    ("quiet zh", "流失概率百分之五十", "number 五十 (percent)"),
    ("healthy zh", "付费 680 美元", "number 680 (amount, USD)"),
    ("healthy en", "They paid CNY 6,800.00.", "number 6,800.00 (amount, CNY)"),
    # none, and some
    ("quiet zh", "没有紧急工单。", "no urgent tickets"),
    ("quiet en", "No ticket is urgent.", "no urgent tickets"),
    ("quiet zh", "没有未关闭工单。", "no tickets"),
    ("quiet zh", "从未付费。", "no paid orders"),
    ("quiet en", "The customer has never logged in.", "no logins"),
    ("healthy zh", "近 7 天没有登录。", "no logins"),
    ("open zh", "没有未关闭工单。", "no tickets"),
    ("healthy zh", "有紧急工单需要处理。", "(urgent tickets) is not what the facts say"),
    ("healthy en", "user_456 has an open ticket.", "(tickets) is not what the facts say"),
    # ids, references, dates, addresses
    ("quiet zh", "user_456 的情况也一样。", "customer user_456"),
    ("quiet en", "user_999 needs follow-up.", "customer user_999"),
    ("quiet zh", "工单 T-103 还没有处理。", "id T-103"),
    ("quiet zh", "见 [e9]。", "reference e9"),
    ("quiet zh", "user_123 在 2026-02-28 活跃过。", "date 2026-02-28"),
    ("quiet zh", "最近一次活跃在 3月5日。", "date 3月5日"),
    ("quiet en", "Last active on March 5th, 2026.", "date March 5th, 2026"),
    ("quiet zh", "14:25 活跃过。", "time 14:25"),
    ("quiet zh", "请看 https://example.com/x", "https://example.com/x"),
    ("quiet zh", "请拨 138 0013 8000", "138 0013 8000"),
    # form
    ("quiet zh", "user_123 needs priority follow-up.", "language"),
    ("quiet en", "user_123 需要重点跟进。", "language"),
    ("quiet zh", "<think>先想想</think>需要跟进", "markup"),
    ("quiet en", "```json\n{}\n```", "markup"),
    ("quiet zh", "需要跟进。" * 401, f"longer than {USED_CHARS}"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "draft", "why"), REFUSED)
def test_what_the_record_does_not_bear_out_is_named_and_not_used(
    runs: Runs, run: str, draft: str, why: str
) -> None:
    seen = view(runs[run], draft)
    assert not seen["used"]
    assert any(why in one for one in seen["disagreements"]), seen["disagreements"]


def test_the_evidence_on_one_customer_does_not_stand_in_the_run_of_another(
    runs: Runs,
) -> None:
    for language in QUESTIONS:
        for one in CUSTOMERS:
            for other in CUSTOMERS:
                own = [item["summary"] for item in runs[f"{other} {language}"]["evidence"]]
                for item in runs[f"{one} {language}"]["evidence"]:
                    seen = view(runs[f"{other} {language}"], item["summary"])
                    assert seen["used"] == (item["summary"] in own), (other, item["summary"])


def test_the_task_that_was_created_is_not_another(runs: Runs) -> None:
    state = runs["task zh"]
    for wrong in ("task_88", task_id(state)[:-1], task_id(state) + "0"):
        seen = view(state, f"已为 user_123 创建跟进任务 {wrong}。")
        assert seen["disagreements"] == [f"id {wrong} is not in the evidence"]
    seen = view(state, f"已为 user_123 创建跟进任务 {task_id(state)}，客服将在今天联系")
    assert "claims an action" in seen["disagreements"][0]


def test_open_tickets_are_not_urgent_ones(runs: Runs) -> None:
    state = copy.deepcopy(runs["quiet zh"])
    state["facts"]["user_123"]["open_ticket_count"]["value"] = 2
    for item in state["evidence"]:
        item["summary"] = item["summary"].replace("未关闭工单 1 个", "未关闭工单 2 个")
    assert view(state, "未关闭工单 2 个，其中 1 个紧急。")["used"]
    assert view(state, "有 1 个工单很紧急。")["used"]
    wrong = view(state, "紧急工单 2 个。")["disagreements"]
    assert wrong == ["number 2 (urgent tickets) is not in the evidence"]
    assert not view(state, "未关闭工单 1 个。")["used"]


def test_evidence_of_a_call_that_was_made_again_no_longer_holds(
    runs: Runs,
) -> None:
    state = copy.deepcopy(runs["logins zh"])
    first = state["tool_history"][0]
    state["tool_history"].append({**first, "call_id": "c9"})
    state["evidence"].append(
        {
            **state["evidence"][0],
            "id": "e9",
            "call_id": "c9",
            "summary": "近 7 天活跃 7 天，登录 12 次",
        }
    )
    state["facts"]["user_456"]["login_count_7d"]["value"] = 12
    assert view(state, "登录 12 次 [e9]")["used"]
    assert view(state, "登录 9 次 [e1]")["disagreements"] == [
        "reference e1 is not in the evidence",
        "number 9 (logins) is not in the evidence",
    ]


def test_that_there_is_none_holds_for_the_window_that_is_named(
    runs: Runs,
) -> None:
    state = runs["windows zh"]
    facts = state["facts"]["user_123"]
    assert facts["login_count_7d"]["value"] == 0
    assert facts["login_count_30d"]["value"] != 0
    assert view(state, "近 7 天没有登录。")["used"]
    assert not view(state, "近 30 天没有登录。")["used"]
    assert not view(state, "没有登录。")["used"]


def test_a_write_of_unknown_outcome_may_be_neither_claimed_nor_denied(
    runs: Runs,
) -> None:
    state = copy.deepcopy(runs["task zh"])
    state["tool_history"][-1].update(
        outcome="failed", failure_kind="outcome_unknown", success=False
    )
    assert "claims" in view(state, "跟进任务已创建。")["disagreements"][0]
    assert "denies" in view(state, "没有创建跟进任务。")["disagreements"][0]


def test_nothing_is_used_of_a_blank_draft_and_a_long_one_is_kept_in_part(
    runs: Runs,
) -> None:
    for blank in ("", " \n\t", "\u200b", "**"):
        seen = view(runs["quiet zh"], blank)
        assert (seen["used"], seen["disagreements"]) == (False, [])
    assert view(runs["quiet zh"], "跟" * 5000)["draft"] == "跟" * KEPT_CHARS


# --- any text ---

PIECES = st.sampled_from(
    [
        *"已未无不天次个一两近前，。；()|*%¥٣Ⅷ½\u200b\ud800\n", "没有", "需要", "跟进", "建议", "工单", "紧急", "登录",
        "付费", "三十", "百分之五", "百分之.", "[e1]", "user_123", "user_456", "task_88", "T-000001", "2026-02-30",
        "3月2日", "十十月三日", "99:99", "3.5", "1,234", "-7", "CNY", "no", "not", "never", "urgent", "tickets",
        "logins", "days", "ago", "twenty", "a", "dozen", "one", "of the last", "follow-up", "needs", "task",
        "created", "will", "call", "and", "<b>", "```", "https://a.b",
    ]
)  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(max_size=60), st.lists(PIECES, max_size=14).map(" ".join), st.lists(PIECES).map("".join)
)


@given(draft=ANY_TEXT, run=st.sampled_from(["quiet zh", "task en", "logins zh", "open en"]))
@settings(max_examples=40, deadline=None)
def test_no_text_breaks_it_and_what_is_used_has_no_disagreement(
    runs: Runs, draft: str, run: str
) -> None:
    seen = view(runs[run], draft)
    assert not (seen["used"] and seen["disagreements"])
    assert seen["used"] or seen["disagreements"] or not re.search(r"\w", draft)
    assert len(set(seen["disagreements"])) == len(seen["disagreements"])


COUNT = re.compile(r"(?<![\w/.:-])[0-9]+(?=\s*(?:[天次个笔元]|days|urgent|logins))")
COUNTED = [(run, draft) for run, draft in USED if COUNT.search(draft)]
"""Drafts with counts in digits."""


@given(chosen=st.sampled_from(COUNTED), data=st.data())
@settings(max_examples=40, deadline=None)
def test_an_accepted_draft_with_one_digit_changed_to_a_count_of_nothing_is_refused(
    runs: Runs, chosen: tuple[str, str], data: st.DataObject
) -> None:
    run, draft = chosen
    state = runs[run]
    count = data.draw(st.sampled_from(list(COUNT.finditer(draft))))
    place = data.draw(st.integers(count.start(), count.end() - 1))
    changed = draft[:place] + data.draw(st.sampled_from("0123456789")) + draft[place + 1 :]
    value = int(changed[count.start() : count.end()])
    known = str([state["evidence"], state["facts"], state["verdict"], state["parsed_goal"]])
    assume(value not in {int(one) for one in re.findall("[0-9]+", known)})
    assert any("number" in one for one in view(state, changed)["disagreements"])
