// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A server that forks for each connection: the child serves, the parent closes its copy and waits for the next. */
#include "scene.h"

#define CLIENTS 5
#define COUNT 200000

static void serve(int fd)
{
	pause_ms(400);
	for (int i = 0; i < 10; i++) {
		write_all(fd, COUNT / 10);
		pause_ms(20);
	}
	pause_ms(300);
	_exit(0);
}

int main(void)
{
	struct sockaddr_in at;
	int from = listener(&at);
	pid_t clients = fork();

	if (clients == 0) {
		int fds[CLIENTS];

		for (int i = 0; i < CLIENTS; i++)
			fds[i] = dial(&at);
		for (int i = 0; i < CLIENTS; i++)
			read_all(fds[i], COUNT);
		pause_ms(400);
		_exit(0);
	}
	for (int i = 0; i < CLIENTS; i++) {
		int fd = accept(from, NULL, NULL);
		unsigned long long cookie = cookie_of(fd);
		pid_t child = fork();

		if (child == 0)
			serve(fd);
		printf("child%d %llu %d\n", i, cookie, child);
		close(fd);
	}
	while (wait(NULL) > 0)
		;
	printf("parent %d\n", getpid());
	return 0;
}
