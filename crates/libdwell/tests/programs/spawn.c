// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Children that share the memory of their parent until they run another program, of a process with connections. */
#include "scene.h"
#include <spawn.h>

extern char **environ;

int main(void)
{
	char *arguments[] = {"true", NULL};
	int client, server, status, more, more_server;

	pair(&client, &server);
	say_socket("sender", client);
	for (int i = 0; i < 100; i++) {
		pid_t child;

		if (i % 2) {
			must(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
		} else {
			child = vfork();
			if (child == 0) {
				execve("/bin/true", arguments, environ);
				_exit(1);
			}
		}
		must(waitpid(child, &status, 0) == child && status == 0);
		write_all(client, 10);
	}
	must(system("exit 3") >> 8 == 3);
	pair(&more, &more_server);
	say_socket("later", more);
	pause_ms(50);
	write_all(more, 77);
	/* Until the test has seen it. */
	must(getchar() == EOF);
	return 0;
}
