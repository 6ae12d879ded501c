"""The package websockets: a message for each request, which the server answers with one."""

import plan

connection = plan.require("websockets.sync.client").sync.client.connect(plan.URL.replace("http", "ws", 1), compression=None)
port = connection.local_address[1]
for request in plan.requests():
    sent = plan.pause(request)
    connection.send(f"{request.service_ms} {request.answer} " + "b" * request.body)
    connection.recv()
    plan.log(port, sent)
plan.print_log()
