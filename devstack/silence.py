"""A logger for health checks and for records that flow: client libraries report whatever they try again."""

from __future__ import annotations

import logging


def silent_logger() -> logging.Logger:
    """Return a logger that drops what it is given: a server that is not up yet is no news."""
    logger = logging.getLogger("devstack.health")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
