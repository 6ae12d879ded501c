"""curl. Options: keep: one curl asks for all that is in the plan, and logs nothing. Otherwise, each request is a curl of its own."""

import shutil
import subprocess
import sys

import plan

if not shutil.which("curl"):
    print("there is no program curl", file=sys.stderr)
    sys.exit(69)
ALWAYS = ["curl", "--silent", "--insecure", "--http1.1", "--noproxy", "*", "--output", "/dev/null"]


def words(request):
    body = ["--data", "b" * request.body] if request.body else []
    return [*body, plan.URL + plan.target(request)]


if "keep" in plan.OPTIONS:
    with open(plan.PLAN + ".curl", "w") as config:
        for line in open(plan.PLAN):
            think, service, *rest = line.split()
            request = plan.Request(float(think), float(service), *map(int, rest))
            config.write(f'url = "{words(request)[-1]}"\noutput = "/dev/null"\n')
    try:
        subprocess.run([*ALWAYS[:-2], "--config", config.name], timeout=float(plan.SECONDS))
    except subprocess.TimeoutExpired:
        pass
else:
    for request in plan.requests():
        sent = plan.pause(request)
        run = subprocess.run(
            [*ALWAYS, "--write-out", "%{local_port}", *words(request)], stdout=subprocess.PIPE, text=True, check=True
        )
        plan.log(run.stdout, sent)
    plan.print_log()
