"""Says what must be the same of a run of iperf3 with -J: its connections, and whether all was sent and came. What is
on its way when the last byte is written does not count as received: by that, runs differ a little."""

import json
import sys

run = json.load(open(sys.argv[1]))
print("connections", len(run["start"]["connected"]))
wanted = int(sys.argv[2])
end = run["end"]
print("all is sent", end["sum_sent"]["bytes"] >= wanted)
print("most came", end["sum_received"]["bytes"] >= wanted * 3 // 4)
if "error" in run:
    print(run["error"])
