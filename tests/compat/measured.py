"""Whether one of these files of figures tells of a connection that was watched inside, and of bytes of it."""

import json
import sys

records = [json.loads(line) for name in sys.argv[1:] for line in open(name)]
connections = [record for record in records if record["type"] == "run.summary" and record["viewpoint"] == "inside"]
moved = [(record["sent_bytes"] or 0) + (record["received_bytes"] or 0) for record in connections]
sys.exit(0 if any(moved) else 1)
