"""What customer teams ask, in Chinese and English: kind, customers, period, and a task or none."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from followup_agent.goals.goal import read_answer, read_goal
from followup_agent.goals.ids import IdPattern
from followup_agent.state import Goal

AS_OF = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
"""Monday 2026-03-02, 07:30 in Shanghai; Sunday in UTC."""
SHANGHAI = ZoneInfo("Asia/Shanghai")
IDS = IdPattern()


def read(text: str) -> Goal:
    return read_goal(text, IDS, AS_OF, SHANGHAI)


JUDGEMENTS = [
    "帮我判断 user_123 最近是否需要重点跟进",
    "帮我判断user_123最近是否需要重点跟进",
    "判断ｕｓｅｒ＿１２３最近７天要不要跟进",
    "user_123 有没有流失风险？",
    "user_123 值得回访吗",
    "要不要关注一下 user_123",
    "这个客户 user_123 健康吗",
    "user_123 怎么样",
    "user_123 最近情况如何",
    "看看 user_123",
    "帮忙评估一下 user_123",
    "user_123 需要挽留吗",
    "user_123 会不会流失",
    "user_123 续费有风险吗",
    "user_123 的活跃度下降了吗，需要跟进吗",
    "user_123 要跟进吗，工单先不看",
    "user_123 要不要 follow up?",
    "user_123",
    "user_123？",
    "分析一下 user_123",
    "user_123 该不该联系",
    "user_123 的优先级是多少",
    "user_123 是高危客户吗",
    "user_123 有什么异常",
    "user_123 还好吗",
    "Does user_123 need priority follow-up?",
    "Should we follow up with user_123?",
    "Is user_123 at risk of churning?",
    "Is user_123 at risk?",
    "Do I need to worry about user_123?",
    "How is user_123 doing?",
    "How's user_123?",
    "Should I reach out to user_123?",
    "Is user_123 healthy?",
    "Does user_123 need attention?",
    "Assess user_123 over the last 30 days",
    "What's the status of user_123?",
    "Prioritise user_123?",
    "Judge user_123, please",
    "Check user_123",
    "Look at user_123",
    "Review user_123",
    "What about user_123?",
    "Tell me about user_123",
    "Is it worth contacting user_123?",
    "Should we call user_123?",
    "Should I be concerned about user_123?",
    "Any red flags for user_123?",
    "Give me a health check on user_123",
]
ACTIVITY = [
    "user_123 最近登录了几次",
    "user_123 近30天活跃吗",
    "user_123 最近还在用吗",
    "user_123 上次登录是什么时候",
    "user_123 最近登陆过吗",
    "user_123 沉默多久了",
    "user_123 多久没来了",
    "user_123 多久没用了",
    "user_123 近7天访问次数",
    "How active has user_123 been?",
    "When did user_123 last log in?",
    "How many logins did user_123 have last week?",
    "Has user_123 logged in lately?",
    "Is user_123 still using the product?",
    "Has user_123 been quiet?",
    "Show user_123 usage",
    "When was user_123 last seen?",
    "How often does user_123 visit?",
]
ORDERS = [
    "user_123 近30天有几笔订单",
    "user_123 最近付费了吗",
    "user_123 续费了没有",
    "user_123 最近买了什么",
    "user_123 半年内消费金额",
    "user_123 上次付款是什么时候",
    "user_123 今年花了多少",
    "user_123 上个月付了多少钱",
    "user_123 退款了吗",
    "user_123 最近有充值吗",
    "How many orders did user_123 place in the last 30 days?",
    "Has user_123 paid this month?",
    "How much did user_123 spend last quarter?",
    "What did user_123 buy?",
    "What is user_123's revenue this year?",
    "Did user_123 renew?",
    "Show payments of user_123",
    "Has user_123 bought anything in the past two weeks?",
    "Did user_123 get a refund?",
]
TICKETS = [
    "user_123 有几个未关闭工单",
    "user_123 有没有投诉",
    "user_123 的紧急工单处理了吗",
    "user_123 有没有升级的问题",
    "user_123 有没有报障",
    "user_123 还有哪些问题没解决",
    "Does user_123 have open tickets?",
    "How many urgent tickets does user_123 have?",
    "Has user_123 complained?",
    "Any escalations from user_123?",
    "Any open issues for user_123?",
    "Any unresolved problems for user_123?",
]
UNCLEAR = [
    "你好",
    "讲个笑话",
    "帮我写首诗",
    "谢谢",
    "1+1=?",
    "删除 user_123",
    "hello",
    "thanks",
    "write a poem",
    "What's the weather?",
]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (text, kind)
        for kind, texts in {
            "judgement": JUDGEMENTS,
            "activity": ACTIVITY,
            "orders": ORDERS,
            "tickets": TICKETS,
            "unclear": UNCLEAR,
        }.items()
        for text in texts
    ],
)
def test_the_kind_of_a_question(text: str, kind: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == (kind, "none")


@pytest.mark.parametrize(
    "text",
    [
        "In order to plan the week: does user_123 need follow-up?",
        "In order to plan the week, how is user_123 doing?",
        "Is user_123's account in order?",
    ],
)
def test_in_order_is_no_question_about_orders(text: str) -> None:
    assert read(text)["kind"] != "orders"


@pytest.mark.parametrize(
    "text",
    [
        "给 user_123 创建一个跟进任务",
        "给user_123建个回访任务",
        "给 user_123 派个任务",
        "帮 user_123 开个任务",
        "给 user_123 发跟进任务",
        "给user_123加个提醒",
        "安排人回访 user_123",
        "安排客户经理联系 user_123",
        "帮 user_123 建一个待办，3天内完成",
        "给 user_123 创建任务，不要打电话",
        "Create a follow-up task for user_123",
        "Create a task for user_123 due in 3 days",
        "Schedule a call with user_123",
        "add a to-do for user_123",
        "Make sure user_123 gets a follow-up task",
        "Set a reminder to call user_123",
        "Remind me to call user_123",
        "Create a follow-up for user_123",
    ],
)
def test_a_task_is_asked_for(text: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == ("task", "requested")


@pytest.mark.parametrize(
    "text",
    [
        "如果 user_123 需要重点跟进，就创建跟进任务",
        "判断 user_123 是否需要跟进，必要时建任务",
        "user_123 需要跟进的话帮我建个任务",
        "要是 user_123 有流失风险就派个任务",
        "If user_123 needs follow-up, create a task",
        "Judge user_123 and create a task if needed",
        "Assess user_123; should it be at risk, open a follow-up task",
    ],
)
def test_a_task_only_if_the_judgement_says_so(text: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == ("judgement", "if_needed")


@pytest.mark.parametrize(
    "text",
    [
        "user_123 要跟进吗？不要创建任务",
        "user_123 要跟进吗？先别建任务",
        "无需建任务，user_123 怎么样",
        "判断 user_123，不要创建任务",
        "判断 user_123，不要给 user_123 创建任务",
        "不用给 user_123 派任务，判断一下就行",
        "别给user_123建任务，看看情况",
        "不需要创建跟进任务，评估一下 user_123",
        "如果 user_123 有风险也不要建任务",
        "Does user_123 need follow-up? Don't create a task",
        "Does user_123 need follow-up? Don’t create a task",
        "Does user_123 need follow-up? Do not create a task",
        "Judge user_123 without creating a task",
        "No task please, just judge user_123",
        "Judge user_123, but please don't set a reminder",
        "Judge user_123, no need for a follow-up task",
        "Judge user_123 and make no task",
        "Is user_123 at risk? Never open a task by yourself",
    ],
)
def test_a_task_that_is_declined_is_not_wanted(text: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == ("judgement", "none")


@pytest.mark.parametrize(
    "text",
    [
        "要不要给 user_123 创建任务",
        "需不需要给 user_123 建任务",
        "user_123 需要安排人回访吗？",
        "有必要给 user_123 建个任务吗",
        "Should I create a task for user_123?",
    ],
)
def test_asking_whether_to_make_a_task_is_no_order_to_make_one(text: str) -> None:
    assert read(text)["task"] != "requested"


@pytest.mark.parametrize(
    ("text", "kind", "task"),
    [
        ("幫我判斷 user_123 最近是否需要重點跟進", "judgement", "none"),
        ("user_123 有沒有流失風險", "judgement", "none"),
        ("給 user_123 建一個跟進任務", "task", "requested"),
        ("user_123 需要安排人回訪嗎", "judgement", "none"),
        ("user_123 過去兩週登入了幾次", "activity", "none"),
        ("user_123 的訂單和付費", "orders", "none"),
        ("user_123 還有沒處理的工單嗎", "tickets", "none"),
    ],
)
def test_traditional_characters_are_read_alike(text: str, kind: str, task: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == (kind, task)


@pytest.mark.parametrize(
    ("text", "kind", "task"),
    [
        ("user_123 发来一句“请立刻给我创建一个任务”，真需要跟进吗？", "judgement", "none"),
        ('user_123 wrote "create a task for me now": at risk?', "judgement", "none"),
        ("「給 user_123 建一個跟進任務」", "task", "requested"),
        ("给 user_123 建一个“跟进”任务", "task", "requested"),
        ("user_123 的“订单”", "orders", "none"),
    ],
)
def test_what_a_customer_is_quoted_with_is_no_wish_of_the_user(
    text: str, kind: str, task: str
) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == (kind, task)


@pytest.mark.parametrize(
    "text",
    ["把 user_123 那个跟进任务取消掉", "user_123 的任务先删了吧", "Cancel the task of user_123"],
)
def test_undoing_a_task_is_neither_a_judgement_nor_a_wish_for_one(text: str) -> None:
    goal = read(text)
    assert (goal["kind"], goal["task"]) == ("unclear", "none")


@pytest.mark.parametrize(
    ("text", "subjects", "unreadable"),
    [
        ("把user_123和user_456都看一下", ["user_123", "user_456"], []),
        ("最近要不要跟进？", [], []),
        ("user_123abc 要跟进吗", [], ["user_123abc"]),
        ("xuser_123 at risk?", [], ["xuser_123"]),
        ("USER_123 at risk?", ["user_123"], []),
        ("user_1234要跟进吗", ["user_1234"], []),
    ],
)
def test_whom_a_question_is_about(text: str, subjects: list[str], unreadable: list[str]) -> None:
    goal = read(text)
    assert (goal["subjects"], goal["unreadable_ids"]) == (subjects, unreadable)


@pytest.mark.parametrize(
    ("text", "days", "stated"),
    [
        ("判断 user_123 最近30天是否需要重点跟进", 30, True),
        ("判断user_30天后", 7, False),
        ("user_365 需要跟进吗", 7, False),
        ("Create a task for user_123 due in 3 days", 7, False),
        ("Create a task for user_123 due in two weeks", 7, False),
        ("Create a task for user_123 due within 14 days", 7, False),
        ("Judge user_123 on the last 30 days; task due in 3 days", 30, True),
        ("Judge user_123; task due in two weeks; use the last 30 days", 30, True),
        ("给 user_123 建任务，3天内完成", 7, False),
        ("给 user_123 建任务，三天之内回访", 7, False),
        ("给 user_123 创建 3 天后到期的跟进任务", 7, False),
        ("看近30天，给 user_123 建任务，3天内完成", 30, True),
        ("给 user_123 建任务，一周内完成", 7, False),
        ("给 user_123 建任务，两周后跟进", 7, False),
        ("给 user_123 建任务，两周内联系", 7, False),
        ("给 user_123 建任务，期限 5 天", 7, False),
        ("Create a task for user_123, to be done within 3 days", 7, False),
        ("Follow up with user_123 in 3 days: create a task", 7, False),
    ],
)
def test_a_due_date_is_no_window(text: str, days: int, stated: bool) -> None:
    window = read(text)["window"]
    assert (window["days"], window["stated"]) == (days, stated)


def test_days_are_counted_in_the_users_time_zone() -> None:
    text = "user_123 昨天登录过吗"
    assert read(text)["window"]["until"] == "2026-03-01"
    assert read_goal(text, IDS, AS_OF, UTC)["window"]["until"] == "2026-02-28"


# --- answers to questions ---


def answer(goal: str, text: str) -> Goal:
    return read_answer(read(goal), text, IDS, AS_OF, SHANGHAI)


def test_an_answer_names_the_customer_and_keeps_what_was_asked() -> None:
    goal = answer("最近30天要不要跟进？必要时建任务", "user_123")
    assert goal["subjects"] == ["user_123"]
    assert (goal["kind"], goal["task"]) == ("judgement", "if_needed")
    assert goal["window"] == {"days": 30, "until": None, "stated": True}


def test_an_answer_chooses_one_of_two_customers() -> None:
    assert answer("user_123 和 user_456 要跟进吗", "user_456 吧")["subjects"] == ["user_456"]


def test_an_answer_without_an_id_keeps_the_customer() -> None:
    goal = answer("user_123 hm", "看看登录情况")
    assert (goal["kind"], goal["subjects"]) == ("activity", ["user_123"])


def test_an_answer_may_change_the_period_but_not_a_clear_kind() -> None:
    goal = answer("user_123 近400天付费了吗", "那就近90天登录")
    assert (goal["kind"], goal["window"]["days"]) == ("orders", 90)


def test_an_answer_to_a_clear_goal_does_not_order_a_task() -> None:
    assert answer("最近要不要跟进？", "user_123，顺便创建任务")["task"] == "none"


def test_an_answer_that_holds_no_id_here_is_reported() -> None:
    goal = answer("最近要不要跟进？", "xuser_123")
    assert (goal["subjects"], goal["unreadable_ids"]) == ([], ["xuser_123"])


def test_a_readable_id_in_the_answer_takes_the_place_of_an_unreadable_one() -> None:
    goal = answer("user_123abc 要跟进吗", "是 user_123")
    assert (goal["subjects"], goal["unreadable_ids"]) == (["user_123"], [])


@pytest.mark.parametrize("text", ["今天天气怎么样", "What's the weather?", "帮我看看", "how is it"])
def test_a_mere_how_is_it_without_a_customer_is_unclear(text: str) -> None:
    goal = read_goal(text, IdPattern(), datetime(2026, 3, 2, tzinfo=UTC), UTC)
    assert goal["kind"] == "unclear"


@pytest.mark.parametrize(
    "text",
    ["已经给 user_123 创建任务了吗？", "why did you create a task for user_123?", "Was a task made for user_123?",
     "删除 user_123 的跟进任务", "Cancel the follow-up task of user_123"],
)  # fmt: skip
def test_a_question_about_a_task_or_its_end_is_no_order_to_make_one(text: str) -> None:
    goal = read_goal(text, IdPattern(), datetime(2026, 3, 2, tzinfo=UTC), UTC)
    assert (goal["kind"], goal["task"]) == ("unclear", "none")
