// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A socket that is disconnected after a long connection and connected again to another end, for one of fewer bytes, which
 * goes on until standard input ends. */
#include "scene.h"

#include <poll.h>

#define LONG_WRITES 64
/* They carry half as many bytes as the long ones. */
#define MOST_SHORT_WRITES 2000

static void write_whole(int fd, const char *bytes, size_t count)
{
	must(write(fd, bytes, count) == (ssize_t)count);
	pause_ms(12);
}

int main(void)
{
	static char bytes[65536];
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	struct pollfd input = {.fd = 0, .events = POLLIN};
	struct sockaddr_in at;
	int client, server, from, second;

	pair(&client, &server);
	say_socket("sender", client);
	for (int i = 0; i < LONG_WRITES; i++) {
		write_whole(client, bytes, sizeof(bytes));
		read_all(server, sizeof(bytes));
	}
	printf("first %d\n", LONG_WRITES);
	must(connect(client, &nobody, sizeof(nobody)) == 0);
	close(server);
	from = listener(&at);
	must(connect(client, (struct sockaddr *)&at, sizeof(at)) == 0);
	server = accept(from, NULL, NULL);
	must(server >= 0);
	say_socket("receiver", server);
	for (second = 0; second < MOST_SHORT_WRITES && poll(&input, 1, 0) == 0; second++) {
		write_whole(client, bytes, 1000);
		/* One byte stays, so that there is always one that arrived and was not read. */
		read_all(server, second ? 1000 : 999);
	}
	printf("second %d\n", second);
	return 0;
}
