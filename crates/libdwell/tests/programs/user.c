// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that has connections and then becomes another user. Each of its threads must be that user's. */
#include "scene.h"
#include <dirent.h>

/* Threads of this process, and how many of them run as root. */
static int threads(int *of_root)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int count = 0;

	*of_root = 0;
	while ((task = readdir(tasks))) {
		char path[300], line[200];
		unsigned real, effective;
		FILE *file;

		if (task->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		count++;
		while (fgets(line, sizeof(line), file))
			if (sscanf(line, "Uid: %u %u", &real, &effective) == 2 && effective == 0)
				++*of_root;
		fclose(file);
	}
	closedir(tasks);
	return count;
}

int main(void)
{
	int before[2], after[2], last[2], of_root;

	if (geteuid() != 0) {
		printf("unavailable\n");
		return 0;
	}
	pair(&before[0], &before[1]);
	write_all(before[0], 1000);
	pause_ms(100);
	must(threads(&of_root) == 2 && of_root == 2);
	must(seteuid(65534) == 0);
	/* At once, and not only with the next connection. */
	must(threads(&of_root) >= 1 && of_root == 0);
	pair(&after[0], &after[1]);
	write_all(after[0], 2000);
	pair(&last[0], &last[1]);
	write_all(before[0], 1000);
	say_socket("before", before[0]);
	say_socket("after", after[0]);
	pause_ms(300);
	must(threads(&of_root) == 2 && of_root == 0);
	return 0;
}
