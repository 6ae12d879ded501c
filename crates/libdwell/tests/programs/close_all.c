// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that closes all descriptors, and relies on the numbers of those that it opens afterwards. */
#include "scene.h"

static int lowest(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

int main(void)
{
	int client, server;

	must(lowest() == 3);
	pair(&client, &server);
	must(server == 5 && client == 4);
	pause_ms(100);
	must(lowest() == 3);
	must(syscall(SYS_close_range, 3, ~0U, 0) == 0);
	pause_ms(50);
	must(lowest() == 3);
	pair(&client, &server);
	say_socket("sender", client);
	for (int i = 0; i < 300; i++) {
		must(lowest() == 3);
		pause_ms(1);
	}
	write_all(client, 1234);
	pause_ms(200);
	must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){8, 8}) == 0);
	for (int i = 0; i < 3; i++) {
		struct sockaddr_in at;
		int from = listener(&at);

		must(from == 3);
		must(dial(&at) == 6);
		must(accept(from, NULL, NULL) == 7);
		must(socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EMFILE);
		pause_ms(50);
		must(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
		close(3);
		close(6);
		close(7);
	}
	return 0;
}
