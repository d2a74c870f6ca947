"""The list of rules as the documentation has it: `python -m lowtide.diagnose.pages` prints it."""

from __future__ import annotations

from lowtide.diagnose.rules import RULES


def contents() -> str:
    """A table, a row a rule; a test compares it with docs/findings/README.md."""
    rows = [f"| [`{rule.id}`](#{rule.id}) | {rule.family} | {rule.says} |" for rule in RULES]
    return "\n".join(["| id | family | what it finds |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(contents(), end="")
