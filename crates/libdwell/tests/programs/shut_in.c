// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A program that installs a seccomp(2) filter before it connects. The filter allows everything. */
#include "scene.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

int main(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {1, &all};
	int client, server;

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	pair(&client, &server);
	write_all(client, 1000);
	read_all(server, 1000);
	pause_ms(200);
	return 0;
}
