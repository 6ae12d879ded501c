// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Many threads that connect and close as fast as they can, while another connection stays open. */
#include "scene.h"

static struct sockaddr_in at;
static volatile int is_over;

static void *answer(void *from)
{
	for (;;) {
		int fd = accept(*(int *)from, NULL, NULL);

		if (fd < 0)
			return NULL;
		close(fd);
	}
}

static void *hammer(void *count)
{
	while (!is_over) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
			++*(long *)count;
		close(fd);
	}
	return NULL;
}

int main(void)
{
	int client, server, from;
	pthread_t thread, threads[8];
	long counts[8] = {0}, all = 0;

	pair(&client, &server);
	say_socket("sender", client);
	from = listener(&at);
	must(pthread_create(&thread, NULL, answer, &from) == 0);
	for (int i = 0; i < 8; i++)
		must(pthread_create(&threads[i], NULL, hammer, &counts[i]) == 0);
	for (int i = 0; i < 50; i++) {
		write_all(client, 1000);
		pause_ms(20);
	}
	is_over = 1;
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		all += counts[i];
	}
	must(all > 0);
	printf("connections %ld\n", all);
	printf("total 50000\n");
	fflush(stdout);
	pause_ms(300);
	return 0;
}
