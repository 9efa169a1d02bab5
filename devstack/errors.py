"""The one error that the local stack raises."""


class DevstackError(RuntimeError):
    """A local server or its software is unavailable; the message names it, the reason and the next step."""
