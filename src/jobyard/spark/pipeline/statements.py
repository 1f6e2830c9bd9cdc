"""Statements of SQL with parts that several of them share.

A statement names tables in braces, as Spark's `sql` fills them in, and parts as `@name`. Parts are
constants of this package: nothing from outside enters a statement this way.
"""


def statement(text: str, **parts: object) -> str:
    """Return a statement with its parts; braces in a part are no names of tables."""
    # A longer name first: it may begin with a shorter one.
    for name in sorted(parts, key=len, reverse=True):
        part = str(parts[name]).replace("{", "{{").replace("}", "}}")
        text = text.replace(f"@{name}", part)
    return text
