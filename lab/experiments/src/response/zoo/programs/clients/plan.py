"""What the Python clients of the zoo share: the requests of a plan, and the log of what the client knows.

A client is started as `PROGRAM [OPTION...] URL PLAN SECONDS`. A line of the plan is a request: how many milliseconds the
client pauses before it, how many the server works on it, the bytes of its answer, the bytes of its body, in how many pieces
the answer comes, and 1 if the request is sent without waiting for the answers before it."""

import sys
import time
from collections import namedtuple

Request = namedtuple("Request", "think_ms service_ms answer body pieces together")
*OPTIONS, URL, PLAN, SECONDS = sys.argv[1:]
_LOG = []


def requests():
    """Yields the requests of the plan in turn until the time is over."""
    with open(PLAN) as lines:
        plan = [Request(float(think), float(service), *map(int, rest)) for think, service, *rest in map(str.split, lines)]
    end = time.monotonic() + float(SECONDS)
    while True:
        for request in plan:
            if time.monotonic() > end:
                return
            yield request


def pause(request):
    """Pauses before a request, and gives the time at which it is about to be sent."""
    if request.think_ms:
        time.sleep(request.think_ms / 1e3)
    return now()


def target(request):
    """The path and query by which an HTTP server knows what it should do."""
    return f"/?ms={request.service_ms}&size={request.answer}&pieces={request.pieces}"


now = time.monotonic_ns


def log(port, sent):
    """Notes a request from this port that was sent at that time, and whose answer has just been read."""
    _LOG.append(f"{port} {sent} {now()}\n")


def print_log():
    """Writes the log: the client's port, then CLOCK_MONOTONIC when a request was sent and when its answer had been read."""
    sys.stdout.write("".join(_LOG))


def require(module):
    """Imports a module; where it is not installed, the program ends with the status that means "unavailable"."""
    try:
        return __import__(module)
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(69)
