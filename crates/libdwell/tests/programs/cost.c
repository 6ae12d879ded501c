// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The time to open and close both ends of a connection, and to write a byte, in nanoseconds. */
#include "scene.h"

static int by_number(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return difference < 0 ? -1 : difference > 0;
}

int main(void)
{
	enum { TIMES = 20000 };
	static double connections[TIMES], writes[TIMES];
	struct sockaddr_in at;
	int from = listener(&at), client, server;
	char byte;

	client = dial(&at);
	server = accept(from, NULL, NULL);
	pause_ms(100);
	for (int i = 0; i < TIMES; i++) {
		struct linger reset = {1, 0};
		double began = now_s();
		int first = dial(&at), second = accept(from, NULL, NULL);

		setsockopt(first, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(first);
		close(second);
		connections[i] = now_s() - began;
	}
	for (int i = 0; i < TIMES; i++) {
		double began = now_s();

		must(write(client, "x", 1) == 1);
		writes[i] = now_s() - began;
		must(read(server, &byte, 1) == 1);
	}
	qsort(connections, TIMES, sizeof(double), by_number);
	qsort(writes, TIMES, sizeof(double), by_number);
	printf("connection %.0f\n", connections[TIMES / 2] * 1e9);
	printf("write %.0f\n", writes[TIMES / 2] * 1e9);
	return 0;
}
