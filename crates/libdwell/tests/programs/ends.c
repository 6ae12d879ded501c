// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Sessions of dwell.h end while other threads are in its calls. If a thread is stuck, an alarm ends the program. */
#include "scene.h"
#include <dwell.h>

static int client, server, why;

static void *waiter(void *result)
{
	*(int *)result = dwell_wait(client, 1000000000ULL, -1);
	why = errno;
	return NULL;
}

static void *reader(void *result)
{
	char bytes[9];

	*(int *)result = 1;
	dwell_recv(server, bytes, sizeof(bytes), 0, NULL);
	return NULL;
}

static pthread_t start(void *(*body)(void *), int *result)
{
	pthread_t thread;

	must(pthread_create(&thread, NULL, body, result) == 0);
	pause_ms(100);
	return thread;
}

static void join(pthread_t thread)
{
	must(pthread_join(thread, NULL) == 0);
}

int main(int count, char **parts)
{
	struct linger reset = {1, 0};
	struct dwell_config config = DWELL_CONFIG;
	int result = 7, status;
	const char *part = count > 1 ? parts[1] : "";
	pthread_t thread;

	alarm(60);
	pair(&client, &server);
	if (strcmp(part, "shorter") == 0) {
		/* The struct of a caller that knows two fields. The memory behind them is not part of it. */
		config.size = offsetof(struct dwell_config, target_ns);
		config.estimator = 77;
		must(dwell_init(&config) == 0);
		dwell_close();
		config.size = 0;
		must(dwell_init(&config) == -1 && errno == EINVAL);
		return 0;
	}
	must(dwell_init(NULL) == 0);
	thread = start(strcmp(part, "cancel") == 0 ? reader : waiter, &result);
	if (strcmp(part, "close") == 0) {
		dwell_close();
		join(thread);
		must(result == -1 && why == ENOTCONN);
		must(dwell_init(NULL) == 0);
	} else if (strcmp(part, "fork") == 0) {
		pid_t child = fork();

		if (child == 0) {
			alarm(60);
			dwell_close();
			must(dwell_init(NULL) == 0 && dwell_get(client, NULL) == 0);
			dwell_close();
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
		dwell_close();
		join(thread);
	} else if (strcmp(part, "reset") == 0) {
		must(setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
		close(server);
		join(thread);
		must(result == -1 && why == ENOTCONN);
	} else if (strcmp(part, "cancel") == 0) {
		must(result == 1 && pthread_cancel(thread) == 0);
		join(thread);
	} else {
		must(!"a part");
	}
	return 0;
}
