// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A given number of connections whose two ends are in one process: twice as many sockets. */
#include "scene.h"

int main(int argc, char **argv)
{
	int count = atoi(argv[1]), ms = argc > 2 ? atoi(argv[2]) : 3000;
	struct rlimit limit = {2 * count + 100, 2 * count + 100};
	int *clients = calloc(count, sizeof(int)), *servers = calloc(count, sizeof(int));
	struct rusage before, after;
	struct sockaddr_in at;
	int from;
	double began;

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
	pause_ms(1500);
	getrusage(RUSAGE_SELF, &before);
	began = now_s();
	pause_ms(ms);
	getrusage(RUSAGE_SELF, &after);
	printf("cpu_permille %.0f\n", ((after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1e6 +
				       (after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
				       (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6 +
				       (after.ru_stime.tv_usec - before.ru_stime.tv_usec)) /
					      (now_s() - began) / 1000);
	fflush(stdout);
	for (int i = 0; i < count; i++)
		read_all(servers[i], 1000);
	return 0;
}
