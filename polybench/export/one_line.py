"""Text from elsewhere (reasons, warnings, the end of a log) may have line breaks; a row has none."""


def one_line(text: str) -> str:
    """The words of `text` with single spaces between them."""
    return " ".join(text.split())
