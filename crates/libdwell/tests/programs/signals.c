// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Signals that must reach the threads of the program, and no other thread. */
#include "scene.h"

static volatile sig_atomic_t alarms, children;
static pthread_t main_thread;

static void on_alarm(int number)
{
	(void)number;
	must(pthread_equal(pthread_self(), main_thread));
	alarms++;
}

static void on_child(int number)
{
	(void)number;
	children++;
}

int main(void)
{
	struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	struct timespec soon = {0, 0};
	int client, server, status;
	sigset_t set, pending;
	double began;
	pid_t child;

	main_thread = pthread_self();
	pair(&client, &server);
	pause_ms(50);
	/* A signal that all threads of the program block stays pending until one of them accepts it. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	must(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	must(kill(getpid(), SIGUSR1) == 0);
	pause_ms(100);
	must(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	must(sigtimedwait(&set, NULL, &soon) == SIGUSR1);
	/* The signal mask is the same as before the poller started. */
	must(pthread_sigmask(SIG_BLOCK, NULL, &pending) == 0);
	must(!sigismember(&pending, SIGALRM) && !sigismember(&pending, SIGCHLD));
	signal(SIGALRM, on_alarm);
	signal(SIGCHLD, on_child);
	must(setitimer(ITIMER_REAL, &often, NULL) == 0);
	began = now_s();
	/* Unread bytes would fill the buffers. */
	while (now_s() - began < 0.5) {
		write_all(client, 10);
		read_all(server, 10);
	}
	must(setitimer(ITIMER_REAL, &never, NULL) == 0);
	must(alarms > 10);
	child = fork();
	if (child == 0)
		_exit(7);
	must(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	must(children == 1);
	printf("alarms %d\n", (int)alarms);
	fflush(stdout);
	/* A signal that nobody handles ends the program. */
	raise(SIGTERM);
	return 0;
}
