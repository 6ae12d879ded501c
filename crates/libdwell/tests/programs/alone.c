// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A user namespace is only for processes of one thread: the poller must be gone when the call is made. */
#include "scene.h"
#include <sched.h>

int main(void)
{
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			int client, server;

			pair(&client, &server);
			pause_ms(i % 8);
			write_all(client, 10);
			must(unshare(CLONE_NEWUSER) == 0);
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
	}
	return 0;
}
