// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Another preloaded library that also replaces connect. */
#include "scene.h"
#include <dlfcn.h>

static int times;

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
	int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");

	times++;
	return next(fd, to, length);
}

__attribute__((destructor)) static void tell(void)
{
	printf("others %d\n", times);
}
