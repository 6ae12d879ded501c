// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A connection that the other end resets while bytes wait to leave. */
#include "scene.h"

int main(void)
{
	struct linger reset = {1, 0};
	static char bytes[65536];
	int client, server, times = 0;

	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 5; i++) {
		pair(&client, &server);
		say_socket("sender", client);
		must(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
		while (write(client, bytes, sizeof(bytes)) > 0)
			;
		must(errno == EAGAIN);
		pause_ms(40);
		must(setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
		close(server);
		pause_ms(40);
		must(write(client, bytes, 1) == -1 && errno == ECONNRESET);
		must(write(client, bytes, 1) == -1 && errno == EPIPE);
		pause_ms(40);
		close(client);
		times++;
	}
	printf("times %d\n", times);
	fflush(stdout);
	pause_ms(300);
	return 0;
}
