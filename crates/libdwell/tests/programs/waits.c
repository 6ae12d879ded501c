// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A receiver that stops reading for a given number of milliseconds, so that bytes wait for a time that this program
 * knows: first in the send buffer, as SIOCOUTQNSD shows, and then others in the receive buffer.
 */
#include "scene.h"

#define SIOCOUTQNSD 0x894B

int main(int argc, char **argv)
{
	int wait_ms = argc > 1 ? atoi(argv[1]) : 500;
	int client, server, unsent, wrote_some = 0;
	static char bytes[65536];
	size_t total = 0;
	double full_s;

	pair(&client, &server);
	say_socket("sender", client);
	say_socket("receiver", server);
	pause_ms(150);
	must(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
	for (;;) {
		ssize_t wrote = write(client, bytes, sizeof(bytes));

		if (wrote < 0) {
			must(errno == EAGAIN);
			pause_ms(1);
			if (wrote_some++ > 50)
				break;
			continue;
		}
		total += wrote;
	}
	full_s = now_s();
	must(ioctl(client, SIOCOUTQNSD, &unsent) == 0);
	must(unsent > 0);
	printf("unsent %d\n", unsent);
	pause_ms(wait_ms);
	read_all(server, total);
	printf("waited %.0f\n", (now_s() - full_s) * 1e9);
	pause_ms(200);
	write_all(client, 10000);
	full_s = now_s();
	pause_ms(wait_ms);
	read_all(server, 10000);
	printf("unread %.0f\n", (now_s() - full_s) * 1e9);
	printf("total %zu\n", total + 10000);
	fflush(stdout);
	pause_ms(600);
	return 0;
}
