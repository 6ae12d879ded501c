// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A thousand children of a process with a connection: some end at once, some run another program, some stay a while. */
#include "scene.h"

int main(void)
{
	int client, server, alive = 0, status;

	pair(&client, &server);
	say_socket("sender", client);
	for (int i = 0; i < 1000; i++) {
		pid_t child = fork();

		must(child >= 0);
		if (child == 0) {
			if (i % 10 == 1)
				execl("/bin/true", "true", (char *)NULL);
			if (i % 10 == 2)
				pause_ms(30);
			_exit(0);
		}
		if (++alive > 50) {
			must(wait(&status) > 0 && status == 0);
			alive--;
		}
		if (i % 20 == 0)
			write_all(client, 100);
	}
	while (alive-- > 0)
		must(wait(&status) > 0 && status == 0);
	must(wait(NULL) == -1);
	printf("total 5000\n");
	fflush(stdout);
	pause_ms(300);
	return 0;
}
