/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Functions that the programs of these tests share: connections over loopback, and failure with a message. */
#ifndef SCENE_H
#define SCENE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

#define must(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			printf("FAILED %s:%d %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                   \
			fflush(stdout);                                                                                \
			_exit(9);                                                                                      \
		}                                                                                                      \
	} while (0)

static inline void pause_ms(int ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000L};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static inline double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static inline int listener(struct sockaddr_in *at)
{
	socklen_t length = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	memset(at, 0, sizeof(*at));
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(fd >= 0);
	must(bind(fd, (struct sockaddr *)at, sizeof(*at)) == 0);
	must(listen(fd, 4096) == 0);
	must(getsockname(fd, (struct sockaddr *)at, &length) == 0);
	return fd;
}

static inline int dial(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	must(fd >= 0);
	must(connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0);
	return fd;
}

/* Both ends of a connection. */
static inline void pair(int *client, int *server)
{
	struct sockaddr_in at;
	int from = listener(&at);

	*client = dial(&at);
	*server = accept(from, NULL, NULL);
	must(*server >= 0);
	close(from);
}

static inline uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t length = sizeof(cookie);

	must(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0);
	return cookie;
}

static inline void write_all(int fd, size_t count)
{
	static char bytes[65536];

	while (count > 0) {
		ssize_t wrote = write(fd, bytes, count < sizeof(bytes) ? count : sizeof(bytes));

		must(wrote > 0);
		count -= wrote;
	}
}

static inline void read_all(int fd, size_t count)
{
	static char bytes[65536];

	while (count > 0) {
		ssize_t got = read(fd, bytes, count < sizeof(bytes) ? count : sizeof(bytes));

		must(got > 0);
		count -= got;
	}
}

static inline void say_socket(const char *name, int fd)
{
	printf("%s %llu %d\n", name, (unsigned long long)cookie_of(fd), fd);
	fflush(stdout);
}

#endif
