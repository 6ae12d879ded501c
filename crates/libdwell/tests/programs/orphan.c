// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that outlives the dwell that started it. It prints 1 once it has a single thread. */
#include "scene.h"
#include <dirent.h>

static int threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	int count = -2;

	must(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

int main(void)
{
	int client, server;
	char byte;

	pair(&client, &server);
	for (int i = 0; i < 1000 && threads() != 2; i++)
		pause_ms(10);
	must(threads() == 2);
	printf("watched 1\n");
	fflush(stdout);
	must(read(0, &byte, 1) == 1);
	for (int i = 0; i < 1000 && threads() != 1; i++)
		pause_ms(10);
	must(threads() == 1);
	pair(&client, &server);
	pause_ms(50);
	must(threads() == 1);
	printf("well 1\n");
	return 0;
}
