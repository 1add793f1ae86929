/* Settings of peerings, as the command line changes them; with or without an engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "engine.h"
#include "peering.h"

void known_fini(struct known *k)
{
	free(k->peers);
	free(k->members);
	free(k->replicas);
}

int known_read(struct volume *v, struct known *ret)
{
	*ret = (struct known){0};
	int err = volume_peers(v, &ret->peers, &ret->n_peers);

	return err ? err : volume_members(v, &ret->members, &ret->replicas, &ret->n_members);
}

const struct member *known_member(const struct known *k, uint64_t replica)
{
	for (uint32_t i = 0; i < k->n_members; i++)
		if (k->replicas[i] == replica)
			return &k->members[i];
	return NULL;
}

int peering_find(struct volume *v, const char *name, uint64_t *ret_replica)
{
	CLEANUP(known_fini) struct known k = {0};
	uint64_t replica = 0;
	uint32_t found = 0;
	char hex[17];
	int err = known_read(v, &k);

	if (err)
		return err;
	for (uint32_t i = 0; i < k.n_peers; i++) {
		const struct member *m = known_member(&k, k.peers[i].replica);

		snprintf(hex, sizeof hex, "%016llx", (unsigned long long)k.peers[i].replica);
		if (!strcasecmp(hex, name) || (m && !strcmp(m->name, name))) {
			replica = k.peers[i].replica;
			found++;
		}
	}
	if (found != 1)
		return found ? -ENOTUNIQ : -ENOENT;
	*ret_replica = replica;
	return 0;
}

static bool is_peer(const struct peer_config *p, uint32_t n, uint64_t replica)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i].replica == replica)
			return true;
	return false;
}

int peering_backlog(struct volume *v, struct peer_status *st, struct vector *ret_has)
{
	struct backlog b = {0};
	int err = volume_peer_knowledge(v, st->replica, ret_has);

	err = err ? err : volume_backlog(v, ret_has, &b);
	if (err)
		return err;
	st->backlog_parts = b.parts;
	st->backlog_files = b.files;
	st->backlog_bytes = b.bytes;
	st->oldest_ns = b.oldest_ns;
	return 0;
}

int peering_statuses(struct volume *v, struct peer_status **ret, uint32_t *ret_n)
{
	CLEANUP(known_fini) struct known k = {0};
	int err = known_read(v, &k);

	if (err)
		return err;
	struct peer_status *s = calloc(k.n_peers + 1, sizeof *s);
	if (!s)
		return -ENOMEM;
	for (uint32_t i = 0; i < k.n_peers; i++) {
		const struct peer_config *p = &k.peers[i];
		const struct member *m = known_member(&k, p->replica);
		struct vector has = {0};

		s[i] = (struct peer_status){.replica = p->replica, .state = p->paused ? PEER_PAUSED : PEER_DISCONNECTED};
		memcpy(s[i].address, p->address, sizeof s[i].address);
		snprintf(s[i].name, sizeof s[i].name, "%s", m ? m->name : "?");
		(void)peering_backlog(v, &s[i], &has);
		vector_fini(&has);
	}
	*ret = s;
	*ret_n = k.n_peers;
	return 0;
}

int peering_ensure(struct volume *v, uint64_t replica)
{
	CLEANUP_FREE struct peer_config *peers = NULL;
	struct peer_config fresh = {.replica = replica};
	uint32_t n = 0;
	int err = volume_peers(v, &peers, &n);

	return err || is_peer(peers, n, replica) ? err : volume_set_peer(v, &fresh);
}

int known_mesh(struct volume *v, struct known *k)
{
	uint32_t fresh = 0;
	int err = 0;

	for (uint32_t i = 0; i < k->n_members && !err; i++) {
		/* without an address of its own: the member's is dialed, also after it has changed */
		struct peer_config p = {.replica = k->replicas[i]};

		if (!k->members[i].address[0] || k->members[i].removed || p.replica == volume_header(v)->replica || is_peer(k->peers, k->n_peers, p.replica))
			continue;
		err = volume_set_peer(v, &p);
		fresh += !err;
	}
	if (err || !fresh)
		return err;
	known_fini(k);
	return known_read(v, k);
}

int peering_publish(struct volume *v, const char *address, bool enter)
{
	CLEANUP_FREE struct member *members = NULL;
	CLEANUP_FREE uint64_t *replicas = NULL;
	const struct header *h = volume_header(v);
	struct member me = {0};
	uint32_t n = 0;
	int err = volume_members(v, &members, &replicas, &n);

	if (err)
		return err;
	if (strlen(address) >= sizeof me.address)
		return -ENAMETOOLONG;
	memcpy(me.name, h->name, sizeof me.name);
	memcpy(me.static_public, h->static_public, sizeof me.static_public);
	for (uint32_t i = 0; i < n; i++) {
		if (replicas[i] != h->replica)
			continue;
		if (members[i].removed || members[i].address[0] || !address[0])
			return 0;
		me = members[i];
		enter = true;
	}
	if (!enter)
		return 0;
	strcpy(me.address, address);
	return volume_set_member(v, h->replica, &me);
}

int peering_pause(struct volume *v, uint64_t replica, bool paused)
{
	CLEANUP_FREE struct peer_config *peers = NULL;
	uint32_t n = 0;
	int err = volume_peers(v, &peers, &n);

	if (err)
		return err;
	for (uint32_t i = 0; i < n; i++) {
		if (peers[i].replica != replica)
			continue;
		peers[i].paused = paused;
		return volume_set_peer(v, &peers[i]);
	}
	return -ENOENT;
}

int peering_remove(struct volume *v, uint64_t replica)
{
	CLEANUP_FREE struct member *members = NULL;
	CLEANUP_FREE uint64_t *replicas = NULL;
	uint32_t n = 0;
	int err = volume_members(v, &members, &replicas, &n);

	if (err)
		return err;
	for (uint32_t i = 0; i < n && !err; i++) {
		if (replicas[i] != replica || members[i].removed)
			continue;
		members[i].removed = true;
		err = volume_set_member(v, replica, &members[i]);
	}
	return err ? err : volume_drop_peer(v, replica);
}
