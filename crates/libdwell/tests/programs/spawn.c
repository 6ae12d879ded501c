// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Children that share the memory of their parent until they run another program, of a process with connections. */
#include "scene.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>

extern char **environ;

/* A child whose filter of system calls ends it while it changes its rights. */
static void kill_child(void)
{
	struct sock_filter no_setuid[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_setuid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {4, no_setuid};
	struct rlimit no_core = {0, 0};
	int status;
	pid_t child = vfork();

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
		setuid(getuid());
		_exit(1);
	}
	must(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(void)
{
	char *arguments[] = {"true", NULL};
	int client, server, status, more, more_server;

	kill_child();
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
