// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A non-blocking connection, an event loop, and writes that are cut short. */
#include "scene.h"

#define COUNT (20 << 20)

int main(void)
{
	struct epoll_event event = {.events = EPOLLOUT};
	static char bytes[8 << 20];
	size_t sent = 0, received = 0, short_writes = 0;
	struct sockaddr_in at;
	int from = listener(&at), events = epoll_create1(0), server;
	int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	errno = 0;
	must(connect(client, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
	server = accept4(from, NULL, NULL, SOCK_NONBLOCK);
	must(server >= 0);
	say_socket("sender", client);
	event.data.fd = client;
	must(epoll_ctl(events, EPOLL_CTL_ADD, client, &event) == 0);
	event.events = EPOLLIN;
	event.data.fd = server;
	must(epoll_ctl(events, EPOLL_CTL_ADD, server, &event) == 0);
	while (received < COUNT) {
		struct epoll_event ready[4];
		int count = epoll_wait(events, ready, 4, 5000);

		must(count > 0);
		for (int i = 0; i < count; i++) {
			if (ready[i].data.fd == client) {
				size_t left = COUNT - sent;
				size_t asked = left < sizeof(bytes) ? left : sizeof(bytes);
				ssize_t wrote = asked ? write(client, bytes, asked) : 0;

				must(wrote >= 0 || errno == EAGAIN);
				short_writes += wrote >= 0 && (size_t)wrote < asked;
				sent += wrote > 0 ? wrote : 0;
				if (sent == COUNT)
					epoll_ctl(events, EPOLL_CTL_DEL, client, NULL);
			} else {
				ssize_t got = read(server, bytes, 50000);

				must(got > 0 || errno == EAGAIN);
				received += got > 0 ? got : 0;
				if (received % 3 == 0)
					pause_ms(1);
			}
		}
	}
	printf("total %zu\n", sent);
	printf("short %zu\n", short_writes);
	fflush(stdout);
	pause_ms(300);
	return 0;
}
