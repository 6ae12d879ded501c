"""A client of server-sent events: one request, whose answer does not end. It logs nothing, as no answer ends."""

import time
import urllib.request

import plan

request = next(iter(plan.requests()))
answer = urllib.request.urlopen(f"{plan.URL}/events?ms={request.service_ms}&size={request.answer}")
end = time.monotonic() + float(plan.SECONDS)
while time.monotonic() < end:
    answer.readline()
