"""gRPC for Python. Options: [workers=N]: N threads that share a channel."""

import threading
from urllib.parse import urlsplit

import plan

WORKERS = next((int(word.removeprefix("workers=")) for word in plan.OPTIONS if word.startswith("workers=")), 1)
channel = plan.require("grpc").insecure_channel(urlsplit(plan.URL).netloc)
call = channel.unary_unary("/zoo/Ask")


def run():
    for request in plan.requests():
        sent = plan.pause(request)
        answer = call(f"{request.service_ms} {request.answer}".encode() + b" " + b"b" * request.body)
        plan.log(answer.split(b" ", 1)[0].decode(), sent)


threads = [threading.Thread(target=run) for _ in range(WORKERS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
plan.print_log()
