#!/bin/sh
# ab with a connection that it keeps, one request at a time, all as the first of the plan. It logs nothing.
# Usage: ab.sh URL PLAN SECONDS
command -v ab >/dev/null || { echo "there is no program ab" >&2; exit 69; }
read -r _ service answer _ pieces _ <"$2"
# A time limit sets the number of requests, which would end a run early; so the number comes after it.
exec ab -q -k -c 1 -t "${3%.*}" -n 1000000 "$1/?ms=$service&size=$answer&pieces=$pieces"
