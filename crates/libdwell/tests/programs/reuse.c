// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Something else at the descriptor of a connection that was cut into pieces a moment ago. */
#include "scene.h"

int main(void)
{
	static char bytes[60000], got[60000];
	int client, server, other[2];

	for (int i = 0; i < 20; i++) {
		char name[] = "/tmp/dwell-reuse-XXXXXX";

		pair(&client, &server);
		write_all(client, 1);
		pause_ms(30);
		write_all(client, sizeof(bytes));
		if (i % 2) {
			must((other[0] = mkstemp(name)) >= 0 && unlink(name) == 0);
		} else {
			must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, other) == 0);
		}
		must(dup2(other[0], client) == client);
		must(write(client, bytes, sizeof(bytes)) == sizeof(bytes));
		if (i % 2 == 0) {
			/* It is still one packet. */
			must(read(other[1], got, sizeof(got)) == sizeof(got));
			close(other[1]);
		}
		close(other[0]);
		close(client);
		close(server);
	}
	return 0;
}
