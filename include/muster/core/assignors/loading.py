"""Find an assignor by its name, or by the dotted path of a class of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

from muster.core.assignors.api import Assignor, AssignorError
from muster.core.assignors.co_partitioned import CoPartitioned
from muster.core.assignors.failover import Failover
from muster.core.assignors.load_aware import LoadAware
from muster.core.assignors.range import Range
from muster.core.assignors.round_robin import RoundRobin
from muster.core.assignors.sticky import Sticky

BUILT_IN: Mapping[str, Callable[..., Assignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (Range, RoundRobin, Sticky, Failover, CoPartitioned, LoadAware)}
)
"""The assignors that come with Muster, by name."""


KAFKAS_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "RangeAssignor": Range.name,
        "RoundRobinAssignor": RoundRobin.name,
        "StickyAssignor": Sticky.name,
        "CooperativeStickyAssignor": Sticky.name,
        "roundrobin": RoundRobin.name,
        "cooperative-sticky": Sticky.name,
    }
)
"""What Kafka and librdkafka call assignors, and the one of Muster that takes its place."""


def load_assignor(name: str, options: Mapping[str, Any] | None = None) -> Assignor:
    """Return the assignor `name`, made with `options`.

    `name` is one of `BUILT_IN`, or the dotted path of a class that can be imported here and is called with the
    options as keyword arguments. Raises `AssignorError` naming the assignor, what is wrong with it and what
    there is: an unknown name, an import that fails, wrong options, or an object that is no assignor.
    """
    factory = BUILT_IN.get(name) or _imported(name)
    assignor = _made(name, factory, dict(options or {}))
    if not isinstance(getattr(assignor, "name", None), str) or not callable(
        getattr(assignor, "assign", None)
    ):
        raise AssignorError(
            f"assignor {name!r}: {type(assignor).__name__} needs a text attribute 'name' and a method "
            "'assign(topics, consumers, previous)'"
        )
    if (problem := _mismatch(assignor.assign, ({}, {}, {}), {})) is not None:
        raise AssignorError(
            f"assignor {name!r}: its 'assign' must take topics, consumers and previous: {problem}"
        )
    made: Assignor = assignor
    return made


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.rpartition(".")
    if attribute in KAFKAS_NAMES and module_name in {"", "org.apache.kafka.clients.consumer"}:
        raise AssignorError(
            f"assignor {name!r} is Kafka's own, which clients run; set {KAFKAS_NAMES[attribute]!r}, Muster's"
        )
    if not module_name:
        close = [f"did you mean {each!r}? " for each in get_close_matches(name, BUILT_IN, n=1)]
        raise AssignorError(
            f"assignor {name!r} is unknown; {''.join(close)}there are {', '.join(sorted(BUILT_IN))}, or give the "
            "dotted path of a class of your own"
        )
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:  # importing runs the module, which may raise anything
        raise AssignorError(
            f"assignor {name!r}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}); "
            f"put it on the Python path, or take one of {', '.join(sorted(BUILT_IN))}"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise AssignorError(f"assignor {name!r}: module {module_name!r} has no class {attribute!r}")
    found: Callable[..., Any] = factory
    return found


def _made(name: str, factory: Callable[..., Any], options: dict[str, Any]) -> Any:
    if (problem := _mismatch(factory, (), options)) is not None:
        raise AssignorError(f"assignor {name!r}: wrong options: {problem}; {_allowed(factory)}")
    try:
        return factory(**options)
    except (Exception, SystemExit) as error:  # a constructor may refuse its options in any way it likes
        raise AssignorError(
            f"assignor {name!r}: options {options!r} were refused ({type(error).__name__}: {error}); "
            f"{_allowed(factory)}"
        ) from error


def _mismatch(target: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Return why `target` cannot be called like this, None if it can or if Python cannot know beforehand."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        return str(error)
    return None


def _allowed(factory: Callable[..., Any]) -> str:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return "see its documentation"
    return f"it takes the options {', '.join(parameters)}" if parameters else "it takes no options"
