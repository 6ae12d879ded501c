"""A server of gRPC for Python that takes as long for an answer as its request says. Usage: grpc_server.py PORT"""

import sys
import time
from concurrent import futures

try:
    import grpc
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(69)


def ask(request, context):
    service_ms, answer = request.split(b" ")[:2]
    time.sleep(float(service_ms) / 1e3)
    # A peer is "ipv4:ADDRESS:PORT".
    port = context.peer().rsplit(":", 1)[1]
    return port.encode() + b" " + b"a" * int(answer)


handlers = {"Ask": grpc.unary_unary_rpc_method_handler(ask)}
server = grpc.server(futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("zoo", handlers),))
server.add_insecure_port(f"0.0.0.0:{sys.argv[1]}")
server.start()
server.wait_for_termination()
