#!/bin/sh
# wrk with a connection, one request at a time. It logs nothing. Usage: wrk.sh URL PLAN SECONDS
command -v wrk >/dev/null || { echo "there is no program wrk" >&2; exit 69; }
# It takes whole seconds.
exec wrk --threads 1 --connections 1 --duration "${3%.*}s" --script "$(dirname "$0")/wrk.lua" "$1" -- "$2"
