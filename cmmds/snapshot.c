/*
 * snapshot: the whole directory as one image, for log compaction and for
 * members that are far behind.
 *
 * A head {magic, version, features, length, CRC32C} and a packed
 * directory.Snapshot, its entries in key order and its clients by id: equal
 * directories make equal images.
 */
#include "base/crc.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SNAPSHOT_MAGIC 0x504e53544c415342ull /* "BSALTSNP", little endian */
#define SNAPSHOT_FEATURES 0u
#define SNAPSHOT_HEAD 28u

static size_t remembered_count(const struct cmmds_state *state)
{
	const struct state_client *client;
	size_t count = 0;

	TAILQ_FOREACH (client, &state->clients, link)
		for (unsigned i = 0; i < CMMDS_WINDOW; i++)
			count += client->window[i].sequence != 0;
	return count;
}

static void fill_entries(const struct cmmds_state *state,
			 Directory__Snapshot *snap,
			 Directory__SnapshotEntry *entries)
{
	for (int kind = 1; kind < CMMDS_KINDS; kind++) {
		const struct state_entry *e =
			state__above(state, kind, NULL, 0);

		for (; e != NULL; e = state__next(e)) {
			Directory__SnapshotEntry *out =
				&entries[snap->n_entries];

			directory__snapshot_entry__init(out);
			out->kind = kind;
			out->key.data = (uint8_t *)e->pub.key;
			out->key.len = e->pub.key_len;
			out->revision = e->pub.revision;
			out->value.data = (uint8_t *)e->pub.value;
			out->value.len = e->pub.value_len;
			snap->entries[snap->n_entries++] = out;
		}
	}
}

static void fill_clients(const struct cmmds_state *state,
			 Directory__Snapshot *snap,
			 Directory__SnapshotClient *clients)
{
	const struct state_client *client;

	TAILQ_FOREACH (client, &state->clients, link) {
		/* From the oldest, so that the ring fills as it did. */
		for (unsigned i = 1; i <= CMMDS_WINDOW; i++) {
			const struct state_remembered *r =
				&client->window[(client->highest + i) %
						CMMDS_WINDOW];
			Directory__SnapshotClient *out =
				&clients[snap->n_clients];

			if (r->sequence == 0)
				continue;
			directory__snapshot_client__init(out);
			out->client.data = (uint8_t *)client->id.b;
			out->client.len = sizeof(client->id.b);
			out->incarnation = client->incarnation;
			out->sequence = r->sequence;
			out->result = r->result;
			out->revision = r->revision;
			snap->clients[snap->n_clients++] = out;
		}
	}
}

int snapshot__encode(const struct cmmds_state *state, uint8_t **out,
		     size_t *out_len)
{
	Directory__Snapshot snap = DIRECTORY__SNAPSHOT__INIT;
	Directory__SnapshotEntry *entries;
	Directory__SnapshotClient *clients;
	size_t entries_count = 0, clients_count = remembered_count(state);
	size_t len;
	int rv = -EMSGSIZE;

	for (int kind = 1; kind < CMMDS_KINDS; kind++)
		entries_count += state->counts[kind];
	entries = cmmds__alloc((entries_count + 1) * sizeof(*entries));
	clients = cmmds__alloc((clients_count + 1) * sizeof(*clients));
	snap.entries = cmmds__alloc((entries_count + 1) * sizeof(void *));
	snap.clients = cmmds__alloc((clients_count + 1) * sizeof(void *));
	snap.version = CMMDS_SNAPSHOT_VERSION;
	snap.applied_index = state->applied_index;
	snap.revision = state->revision;
	snap.event_sequence = state->event_sequence;
	fill_entries(state, &snap, entries);
	fill_clients(state, &snap, clients);
	assert(snap.n_entries == entries_count);
	assert(snap.n_clients == clients_count);

	len = directory__snapshot__get_packed_size(&snap);
	if (len <= CMMDS_SNAPSHOT_MAX - SNAPSHOT_HEAD) {
		*out = cmmds__alloc(SNAPSHOT_HEAD + len);
		*out_len = SNAPSHOT_HEAD + len;
		directory__snapshot__pack(&snap, *out + SNAPSHOT_HEAD);
		put_le64(*out, SNAPSHOT_MAGIC);
		put_le32(*out + 8, CMMDS_SNAPSHOT_VERSION);
		put_le32(*out + 12, SNAPSHOT_FEATURES);
		put_le64(*out + 16, len);
		put_le32(*out + 24, crc32c_more(crc32c(*out, 24),
						*out + SNAPSHOT_HEAD, len));
		rv = 0;
	}
	free(snap.entries);
	free(snap.clients);
	free(entries);
	free(clients);
	return rv;
}

static int load(struct cmmds_state *state, const Directory__Snapshot *snap)
{
	state->applied_index = snap->applied_index;
	state->revision = snap->revision;
	state->event_sequence = snap->event_sequence;
	for (size_t i = 0; i < snap->n_entries; i++) {
		const Directory__SnapshotEntry *e = snap->entries[i];
		int rv = state__load(state, e->kind, e->key.data, e->key.len,
				     e->revision, e->value.data, e->value.len);

		if (rv != 0)
			return rv;
	}
	for (size_t i = 0; i < snap->n_clients; i++) {
		const Directory__SnapshotClient *c = snap->clients[i];
		struct state_remembered what = { c->sequence, c->revision,
						 c->result };
		struct uuid id;
		int rv;

		if (c->client.len != sizeof(id))
			return -EUCLEAN;
		memcpy(id.b, c->client.data, sizeof(id));
		rv = state__load_client(state, &id, c->incarnation, &what);
		if (rv != 0)
			return rv;
	}
	return 0;
}

int snapshot__decode(struct cmmds_state *state, const uint8_t *data, size_t len)
{
	Directory__Snapshot *snap;
	int rv;

	if (len < SNAPSHOT_HEAD || get_le64(data) != SNAPSHOT_MAGIC)
		return -EUCLEAN;
	if (get_le32(data + 8) != CMMDS_SNAPSHOT_VERSION ||
	    (get_le32(data + 12) & ~SNAPSHOT_FEATURES) != 0)
		return -EMEDIUMTYPE;
	if (get_le64(data + 16) != len - SNAPSHOT_HEAD ||
	    get_le32(data + 24) != crc32c_more(crc32c(data, 24),
					       data + SNAPSHOT_HEAD,
					       len - SNAPSHOT_HEAD))
		return -EUCLEAN;
	snap = directory__snapshot__unpack(
		&cmmds__allocator, len - SNAPSHOT_HEAD, data + SNAPSHOT_HEAD);
	if (snap == NULL)
		return -EUCLEAN;
	rv = snap->version == CMMDS_SNAPSHOT_VERSION ? load(state, snap)
						     : -EMEDIUMTYPE;
	directory__snapshot__free_unpacked(snap, NULL);
	return rv;
}
