// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A process whose main thread ends by pthread_exit, with a connection open: the process ends with its last thread. */
#include "scene.h"

static void *rest(void *unused)
{
	pause_ms(300);
	return unused;
}

int main(void)
{
	int client, server;
	pthread_t thread;

	pair(&client, &server);
	say_socket("sender", client);
	must(pthread_create(&thread, NULL, rest, NULL) == 0);
	pause_ms(100);
	pthread_exit(NULL);
}
