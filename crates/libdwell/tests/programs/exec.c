// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A connection that the next program inherits. */
#include "scene.h"

int main(int argc, char **argv)
{
	int client, server;
	char from[16], to[16];

	if (argc > 2) {
		client = atoi(argv[1]);
		server = atoi(argv[2]);
		pause_ms(200);
		write_all(client, 5000);
		read_all(server, 8000);
		printf("total 8000\n");
		fflush(stdout);
		pause_ms(300);
		return 0;
	}
	pair(&client, &server);
	say_socket("sender", client);
	printf("pid %d\n", getpid());
	fflush(stdout);
	pause_ms(60);
	write_all(client, 3000);
	pause_ms(60);
	snprintf(from, sizeof(from), "%d", client);
	snprintf(to, sizeof(to), "%d", server);
	execl(argv[0], argv[0], from, to, (char *)NULL);
	must(0);
}
