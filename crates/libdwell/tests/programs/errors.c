// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Return values and errno of calls are the same as without the library, and a thread can be cancelled in them. */
#include "scene.h"

static struct sockaddr_in at;

static void *wait_for_ever(void *from)
{
	must(accept(*(int *)from, NULL, NULL) >= 0);
	must(accept(*(int *)from, NULL, NULL) < 0);
	return NULL;
}

int main(void)
{
	struct sockaddr_in nobody, peer;
	socklen_t length = sizeof(peer);
	int from = listener(&at), client, server, fd, closed;
	pthread_t thread;
	void *result;

	closed = listener(&nobody);
	close(closed);
	for (int i = 0; i < 300; i++) {
		errno = 1234;
		client = dial(&at);
		must(errno == 1234);
		server = i % 2 ? accept(from, (struct sockaddr *)&peer, &length)
			       : accept4(from, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC);
		must(server >= 0 && errno == 1234);
		must(peer.sin_family == AF_INET && length == sizeof(peer));
		must(write(client, "x", 1) == 1 && errno == 1234);
		must(((fcntl(server, F_GETFD) & FD_CLOEXEC) != 0) == (i % 2 == 0));
		close(client);
		close(server);
		if (i % 30 == 0)
			pause_ms(12);
	}
	fd = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(fd, (struct sockaddr *)&nobody, sizeof(nobody)) == -1 && errno == ECONNREFUSED);
	must(connect(-1, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EBADF);
	must(connect(fd, NULL, 16) == -1 && errno == EFAULT);
	must(accept(0, NULL, NULL) == -1 && (errno == ENOTSOCK || errno == EBADF));
	must(accept(fd, NULL, NULL) == -1 && errno == EINVAL);
	must(accept4(from, NULL, NULL, 0x40) == -1 && errno == EINVAL);
	/* A thread that waits in accept after it has accepted a connection. */
	must(pthread_create(&thread, NULL, wait_for_ever, &from) == 0);
	client = dial(&at);
	pause_ms(100);
	must(pthread_cancel(thread) == 0);
	must(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	printf("well 1\n");
	return 0;
}
