"""redis-py. A request is a pipeline of a sleep and a read, which go in one packet. Options: [sleep]: the sleep alone."""

from urllib.parse import urlsplit

import plan

server = urlsplit(plan.URL)
client = plan.require("redis").Redis(server.hostname, server.port, max_connections=1)
connection = client.connection_pool.get_connection()
port = connection._sock.getsockname()[1]
client.connection_pool.release(connection)
sizes = set()
for request in plan.requests():
    if request.answer not in sizes:
        sizes.add(request.answer)
        client.set(f"value-{request.answer}", b"v" * request.answer)
    sent = plan.pause(request)
    if "sleep" in plan.OPTIONS:
        client.execute_command("DEBUG", "SLEEP", request.service_ms / 1e3)
    else:
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command("DEBUG", "SLEEP", request.service_ms / 1e3)
        pipeline.get(f"value-{request.answer}")
        pipeline.execute()
    plan.log(port, sent)
plan.print_log()
