// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Blocking writes that a signal or SO_SNDTIMEO ends: they return what was taken until then, as in one call of the kernel. */
#include "scene.h"

#define MUCH (64 << 20)

static char bytes[MUCH];

static void on_alarm(int number)
{
	(void)number;
}

/* Reads a little at a time, so that there is always room again. */
static void *trickle(void *server)
{
	static _Thread_local char some[2000];

	while (read(*(int *)server, some, sizeof(some)) > 0)
		pause_ms(1);
	return NULL;
}

/* Keeps the buffer full until the library has found out how writes are to be cut. */
static int filled(int *server)
{
	int client, lowat = 0, small = 4096;
	socklen_t length = sizeof(lowat);
	struct sockaddr_in at;
	int from = listener(&at);
	pthread_t reader;

	must(setsockopt(from, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
	client = dial(&at);
	*server = accept(from, NULL, NULL);
	close(from);
	small = 65536;
	must(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
	must(pthread_create(&reader, NULL, trickle, server) == 0);
	for (int i = 0; i < 200 && (lowat == 0 || lowat > 50000); i++) {
		send(client, bytes, MUCH, MSG_DONTWAIT);
		pause_ms(10);
		must(getsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, &length) == 0);
	}
	return client;
}

int main(void)
{
	struct itimerval often = {{0, 200000}, {0, 200000}}, never = {{0, 0}, {0, 0}};
	struct sigaction restart = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct timeval limit = {0, 200000};
	int client, servers[2];
	ssize_t wrote;

	client = filled(&servers[0]);
	must(sigaction(SIGALRM, &restart, NULL) == 0);
	must(setitimer(ITIMER_REAL, &often, NULL) == 0);
	wrote = write(client, bytes, MUCH);
	must(wrote > 0 && wrote < MUCH);
	must(setitimer(ITIMER_REAL, &never, NULL) == 0);
	say_socket("first", client);

	client = filled(&servers[1]);
	must(setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
	wrote = write(client, bytes, MUCH);
	must(wrote > 0 && wrote < MUCH);
	say_socket("second", client);
	return 0;
}
