#!/bin/sh
# A new database cluster of PostgreSQL, below TMPDIR. Usage: postgres.sh PORT
set -e
# Debian keeps its programs out of the search path.
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
initdb --version >/dev/null 2>&1 || { echo "there is no program initdb of PostgreSQL" >&2; exit 69; }
PATH=$PATH:$(dirname "$(readlink -f "$(command -v initdb)")")
folder=$(mktemp -d)
# PostgreSQL refuses to run as root, and somebody else must reach its files.
chown nobody "$folder"
chmod o+x "$TMPDIR" "$TMPDIR/.."
as_nobody() {
	# Shared memory of a server that is killed goes with its namespace.
	unshare --ipc setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"
}
cd /
as_nobody initdb -D "$folder/data" -U zoo -A trust --no-sync >/dev/null
echo "host all all all trust" >>"$folder/data/pg_hba.conf"
as_nobody postgres -D "$folder/data" -p "$1" -k "$folder" -c listen_addresses='*' -c fsync=off -c max_connections=10
