// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that sets TCP_NOTSENT_LOWAT of one connection itself, before and after, and not that of another. */
#include "scene.h"

static int lowat(int fd)
{
	int bytes = -1;
	socklen_t length = sizeof(bytes);

	must(getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length) == 0);
	return bytes;
}

static void set(int fd, int bytes)
{
	must(setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes)) == 0);
}

static void busy(int fd, int server)
{
	for (int i = 0; i < 20; i++) {
		write_all(fd, 50000);
		read_all(server, 50000);
		pause_ms(10);
	}
}

int main(void)
{
	int before, after, never, servers[3];
	struct sockaddr_in at;
	int from = listener(&at), fd = socket(AF_INET, SOCK_STREAM, 0);

	set(fd, 77777);
	must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	before = fd;
	servers[0] = accept(from, NULL, NULL);
	never = dial(&at);
	servers[1] = accept(from, NULL, NULL);
	after = dial(&at);
	servers[2] = accept(from, NULL, NULL);
	busy(before, servers[0]);
	busy(never, servers[1]);
	busy(after, servers[2]);
	printf("never %d\n", lowat(never));
	printf("after_before %d\n", lowat(after));
	set(after, 88888);
	busy(after, servers[2]);
	busy(before, servers[0]);
	printf("before %d\n", lowat(before));
	printf("after %d\n", lowat(after));
	say_socket("sender", never);
	pause_ms(100);
	return 0;
}
