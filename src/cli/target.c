/* A STORE or MOUNTPOINT argument: is there a daemon, and where is its socket? */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cleanup.h"
#include "progress.h"

char *control_path(const char *store)
{
	char *p;
	return asprintf(&p, "%s/control", store) < 0 ? NULL : p;
}

int target_find(const char *arg, char **ret_store, char **ret_socket)
{
	char value[4096];
	ssize_t n = getxattr(arg, "user.twofold.store", value, sizeof value - 1);
	char *store = n > 0 ? strndup(value, (size_t)n) : strdup(arg), *sock;

	if (!store)
		return -ENOMEM;
	sock = control_path(store);
	if (!sock) {
		free(store);
		return -ENOMEM;
	}
	if (access(sock, F_OK)) {
		free(sock);
		sock = NULL;
	}
	*ret_store = store;
	*ret_socket = sock;
	return 0;
}

int target_look(const char *store)
{
	CLEANUP_CLOSE int dir = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	return faccessat(dir, "volume", F_OK, 0) ? errno == ENOENT ? -EUCLEAN : -errno : 0;
}

int target_open(const char *store, const struct key_source *key, struct volume **ret)
{
	struct volume_options vo = {0};
	struct secret s = {0};
	struct progress_wait wait;
	int r = target_look(store);

	if (!r)
		r = secret_get(key, false, &s);
	if (r)
		return r;
	progress_wait_begin(&wait, "opening the store");
	r = volume_open(store, &vo, s.p, s.len, s.kind, ret);
	progress_wait_end(&wait);
	secret_fini(&s);
	return r;
}
