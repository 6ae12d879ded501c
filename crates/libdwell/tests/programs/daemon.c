// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A process that becomes a daemon, forking twice, with a connection that it had before. */
#include "scene.h"

int main(void)
{
	int client, server;

	pair(&client, &server);
	say_socket("sender", client);
	pause_ms(100);
	write_all(client, 1000);
	pause_ms(50);
	if (fork() > 0)
		_exit(0);
	setsid();
	if (fork() > 0)
		_exit(0);
	printf("daemon %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 40; i++) {
		write_all(client, 100);
		pause_ms(100);
	}
	printf("total %d\n", 1000 + 40 * 100);
	fflush(stdout);
	pause_ms(200);
	return 0;
}
