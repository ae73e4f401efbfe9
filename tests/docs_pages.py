"""Take the pages apart that tests run."""

import re


def blocks(language: str, page: str) -> list[str]:
    """The code blocks of this language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """The shell commands of a page, in order, without their remarks."""
    lines = [line for block in blocks("sh", page) for line in block.splitlines()]
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines]
