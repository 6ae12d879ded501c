// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Descriptors that are copied, closed and reused for other connections. */
#include "scene.h"

int main(void)
{
	int first, first_server, second, second_server, moved, old;

	pair(&first, &first_server);
	pair(&second, &second_server);
	pause_ms(60);
	/* The first descriptor moves, and the second gets its number. */
	moved = dup(first);
	old = first;
	must(dup2(second, old) == old);
	close(second);
	pause_ms(300);
	write_all(moved, 11111);
	write_all(old, 22222);
	pause_ms(100);
	say_socket("moved", moved);
	say_socket("taken", old);
	/* The same across a gap in which nothing is reported. */
	must(dup2(moved, 700) == 700);
	close(moved);
	pause_ms(500);
	must(fcntl(first_server, F_GETFD) >= 0);
	/* A number that is reused immediately, many times. */
	for (int i = 0; i < 200; i++) {
		int client, server;

		pair(&client, &server);
		write_all(client, 7);
		close(client);
		close(server);
		if (i % 10 == 0)
			pause_ms(12);
	}
	write_all(700, 3);
	write_all(old, 4);
	say_socket("gone", 700);
	pause_ms(1500);
	return 0;
}
