// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* All of dwell.h, over loopback, with bytes that wait for a time that this program knows. */
#include "scene.h"
#include <dwell.h>

static int calls;

static void controller(const struct dwell_info *info, struct dwell_setting *setting, void *user)
{
	must(info->size == sizeof(*info) && (info->valid & DWELL_CWND) && info->cwnd > 0);
	must(user == &calls);
	calls++;
	setting->notsent_lowat = 55555;
}

static void *late(void *server)
{
	static char bytes[65536];

	pause_ms(400);
	while (read(*(int *)server, bytes, sizeof(bytes)) > 0)
		;
	return NULL;
}

int main(void)
{
	static char bytes[4 << 20];
	struct dwell_info info = DWELL_INFO;
	struct dwell_config config = DWELL_CONFIG;
	struct iovec part = {bytes, 100};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int client, server, lowat = 0, status;
	socklen_t length = sizeof(lowat);
	pthread_t thread;
	pid_t child;

	pair(&client, &server);
	/* Before the session starts, calls do what the wrapped calls do. */
	info.valid = ~0ULL;
	must(dwell_send(client, "abcd", 4, 0, &info) == 4 && info.valid == 0);
	must(dwell_read(server, bytes, 4, &info) == 4 && memcmp(bytes, "abcd", 4) == 0);
	must(dwell_get(client, &info) == -1 && errno == EINVAL);
	must(dwell_wait(client, 1, 0) == -1 && errno == EINVAL);
	config.estimator = 7;
	must(dwell_init(&config) == -1 && errno == EINVAL);
	config.estimator = DWELL_EXACT;
	config.congestion = "a_name_that_is_too_long";
	must(dwell_init(&config) == -1 && errno == EINVAL);
	config.congestion = NULL;
	config.budget_permille = 200;
	must(dwell_init(&config) == 0);
	must(dwell_init(NULL) == -1 && errno == EALREADY);
	must(dwell_get(0, &info) == -1 && errno == ENOTCONN && info.valid == 0);
	must(dwell_get(-1, &info) == -1 && errno == ENOTCONN);
	must(dwell_send(-1, bytes, 1, 0, &info) == -1 && errno == EBADF && info.valid == 0);
	must(dwell_get(client, &info) == 0);
	must((info.valid & DWELL_CWND) && !(info.valid & DWELL_SENDER_DELAY));
	/* Each call. */
	errno = 4321;
	must(dwell_send(client, bytes, 100, 0, &info) == 100 && (info.valid & DWELL_TIME));
	must(dwell_sendmsg(client, &message, 0, &info) == 100);
	must(dwell_write(client, bytes, 100, &info) == 100);
	must(dwell_writev(client, &part, 1, NULL) == 100);
	must(dwell_recv(server, bytes, 100, MSG_WAITALL, &info) == 100);
	must(dwell_recvmsg(server, &message, MSG_WAITALL, &info) == 100);
	must(dwell_read(server, bytes, 100, &info) == 100);
	must(dwell_readv(server, &part, 1, &info) == 100);
	must(errno == 4321);
	/* A caller that was compiled against a shorter struct. */
	info.size = offsetof(struct dwell_info, sender_delay_ns);
	info.cwnd = 12345678;
	must(dwell_get(client, &info) == 0 && info.cwnd == 12345678 && info.time_ns > 0);
	info.size = sizeof(info);
	must(dwell_wait(client, 1000000000, 50) == 0);
	/* Bytes wait in the buffers. */
	must(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
	while (dwell_write(client, bytes, sizeof(bytes), &info) > 0)
		;
	must(errno == EAGAIN);
	must(pthread_create(&thread, NULL, late, &server) == 0);
	must(dwell_wait(client, 200000000, 5000) == 1);
	must(dwell_get(client, &info) == 0);
	must((info.valid & DWELL_SENDER_WAITING) && info.sender_waiting_ns > 200000000);
	for (int i = 0; i < 500 && (!(info.valid & DWELL_SENDER_DELAY) || info.sender_delay_ns < 300000000); i++) {
		pause_ms(10);
		must(dwell_get(client, &info) == 0);
	}
	must(info.sender_delay_ns > 300000000 && info.sender_delay_ns < 3000000000);
	/* The program has its own controller. */
	must(dwell_control(client, NULL, NULL) == -1 && errno == EINVAL);
	must(dwell_control(client, controller, &calls) == 0);
	for (int i = 0; i < 500 && lowat != 55555; i++) {
		pause_ms(10);
		must(getsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, &length) == 0);
	}
	must(lowat == 55555 && calls > 0);
	pause_ms(1200);
	must(dwell_get(client, &info) == 0 && (info.valid & DWELL_THROUGHPUT));
	/* A child has no thread, and does not wait for one. */
	child = fork();
	if (child == 0) {
		must(dwell_get(client, &info) == -1 && errno == EINVAL);
		must(dwell_write(client, bytes, 1, &info) == 1 && info.valid == 0);
		dwell_close();
		must(dwell_init(NULL) == 0);
		must(dwell_get(client, &info) == 0 && (info.valid & DWELL_CWND));
		dwell_close();
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	/* The end of a connection wakes waiting threads. */
	close(client);
	must(pthread_join(thread, NULL) == 0);
	must(dwell_get(client, &info) == -1 && errno == ENOTCONN);
	dwell_close();
	dwell_close();
	must(dwell_init(NULL) == 0);
	printf("well 1\n");
	return 0;
}
