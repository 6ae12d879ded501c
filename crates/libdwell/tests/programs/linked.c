// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that is linked with the library and has no session prints how many threads it has. */
#include "scene.h"
#include <dirent.h>
#include <dwell.h>

int main(void)
{
	struct dirent *task;
	int client, server, count = 0;
	DIR *tasks;

	must(dwell_get(0, NULL) == -1);
	pair(&client, &server);
	say_socket("sender", client);
	for (int i = 0; i < 20; i++) {
		write_all(client, 1000);
		read_all(server, 1000);
		pause_ms(10);
	}
	tasks = opendir("/proc/self/task");
	while ((task = readdir(tasks)))
		count += task->d_name[0] != '.';
	printf("threads %d\n", count);
	fflush(stdout);
	pause_ms(300);
	return 0;
}
