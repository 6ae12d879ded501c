// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A program that has connections, and then installs a filter for all its threads which kills it for any system call that
 * it does not need itself. With the argument "prctl" the filter is for the calling thread, otherwise for all.
 */
#include "scene.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int count = 0;

	while ((task = readdir(tasks)))
		count += task->d_name[0] != '.';
	closedir(tasks);
	return count;
}

int main(int count, char **arguments)
{
	struct sock_filter few[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write),
		ALLOW(SYS_read),
		ALLOW(SYS_connect),
		ALLOW(SYS_accept),
		ALLOW(SYS_accept4),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = {sizeof(few) / sizeof(*few), few};
	struct sockaddr_in at;
	int client, server, from, later;

	pair(&client, &server);
	write_all(client, 1000);
	pause_ms(100);
	must(threads() == 2);
	say_socket("before", client);
	from = listener(&at);
	later = socket(AF_INET, SOCK_STREAM, 0);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (count > 1 && strcmp(arguments[1], "prctl") == 0)
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	else
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
	/* More than any poll takes, without a call that would be needed for sleeping. */
	for (volatile uint64_t n = 0; n < 500000000; n++)
		;
	if (connect(later, (struct sockaddr *)&at, sizeof(at)) != 0 || accept(from, NULL, NULL) < 0)
		_exit(8);
	write_all(client, 2000);
	_exit(0);
}
