// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A given number of connections whose two ends are in one process: twice as many sockets. They stay until standard input ends. */
#include "scene.h"

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	struct rlimit limit = {2 * count + 100, 2 * count + 100};
	int *clients = calloc(count, sizeof(int)), *servers = calloc(count, sizeof(int));
	struct sockaddr_in at;
	int from;

	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	from = listener(&at);
	for (int i = 0; i < count; i++) {
		clients[i] = dial(&at);
		servers[i] = accept(from, NULL, NULL);
		must(servers[i] >= 0);
	}
	for (int i = 0; i < count; i++)
		write_all(clients[i], 1000);
	printf("made %d\n", 2 * count);
	fflush(stdout);
	must(getchar() == EOF);
	for (int i = 0; i < count; i++)
		read_all(servers[i], 1000);
	return 0;
}
