// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A process that is not allowed to create a thread. */
#include "scene.h"

int main(void)
{
	struct rlimit none = {0, 0};
	int client, server;

	/* The limit does not apply to root. */
	if (getuid() == 0)
		must(setresuid(65534, 65534, 65534) == 0);
	must(setrlimit(RLIMIT_NPROC, &none) == 0);
	for (int i = 0; i < 10; i++) {
		errno = 77;
		pair(&client, &server);
		must(errno == 77);
		write_all(client, 100);
		read_all(server, 100);
	}
	printf("well 1\n");
	return 0;
}
