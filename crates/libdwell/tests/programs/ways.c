// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Bytes that are sent in other ways than by write(2): stdio, system calls, sendfile, pwritev2, splice, MSG_ZEROCOPY. */
#include "scene.h"

int main(void)
{
	static char bytes[4096];
	struct iovec part = {bytes, sizeof(bytes)};
	int client, server, file, pipes[2];
	size_t total = 0;
	off_t at = 0;
	FILE *stream;

	pair(&client, &server);
	say_socket("sender", client);
	pause_ms(50);
	stream = fdopen(dup(client), "w");
	total += fprintf(stream, "%01000d", 7);
	must(fflush(stream) == 0);
	total += dprintf(client, "%0500d", 7);
	total += syscall(SYS_write, client, bytes, 5);
	total += pwritev2(client, &part, 1, -1, 0);
	file = open("/proc/self/exe", O_RDONLY);
	total += sendfile(client, file, &at, 10000);
	must(pipe(pipes) == 0 && write(pipes[1], bytes, 3000) == 3000);
	total += splice(pipes[0], NULL, client, NULL, 3000, 0);
	must(total == 1000 + 500 + 5 + 4096 + 10000 + 3000);
	read_all(server, total);
	printf("total %zu\n", total);
	fflush(stdout);
	pause_ms(300);
	return 0;
}
