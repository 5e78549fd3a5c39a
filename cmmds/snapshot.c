/*
 * snapshot: the whole directory as one image, for log compaction and for
 * members that are far behind.
 *
 * A head {magic, version, features, length, CRC32C} and a packed
 * directory.Snapshot, its entries in key order and its clients by id: equal
 * directories make equal images.  It is packed in parts, between which commands
 * are applied, and is of the moment at which it began.
 */
#include "base/crc.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SNAPSHOT_MAGIC 0x504e53544c415342ull /* "BSALTSNP", little endian */
#define SNAPSHOT_FEATURES 0u
#define SNAPSHOT_HEAD 28u

/* Packed in one turn, if there are as many: whichever comes first. */
#define PART_ENTRIES 1024u
#define PART_BYTES (512u << 10)

/*
 * An image under way.  Commands are applied meanwhile: what they change or
 * remove is kept as it was, and what they put is of a later revision.
 */
struct state_image {
	struct cmmds_state before; /* kept so; of the image's revision */
	int kind; /* whose entries are packed now */
	bool within; /* those up to @key are */
	uint8_t key[CMMDS_KEY_MAX];
	size_t key_len;
	uint8_t *clients; /* packed, for the end */
	size_t clients_len;
	uint8_t *data;
	size_t at, len;
	uint32_t crc;
};

/* ---- taking one ---- */

/* One of a list's, by itself: they are packed one behind the other. */
static void snapshot_of(const struct cmmds_entry *e, Directory__Snapshot *snap,
			Directory__SnapshotEntry *entry,
			Directory__SnapshotEntry **list)
{
	directory__snapshot__init(snap);
	directory__snapshot_entry__init(entry);
	entry->kind = e->kind;
	entry->key.data = (uint8_t *)e->key;
	entry->key.len = e->key_len;
	entry->revision = e->revision;
	entry->value.data = (uint8_t *)e->value;
	entry->value.len = e->value_len;
	*list = entry;
	snap->n_entries = 1;
	snap->entries = list;
}

size_t snapshot__entry_size(const struct cmmds_entry *e)
{
	Directory__Snapshot snap;
	Directory__SnapshotEntry entry, *list;

	snapshot_of(e, &snap, &entry, &list);
	return directory__snapshot__get_packed_size(&snap);
}

static void pack_entry(struct state_image *image, const struct cmmds_entry *e)
{
	Directory__Snapshot snap;
	Directory__SnapshotEntry entry, *list;

	snapshot_of(e, &snap, &entry, &list);
	image->at += directory__snapshot__pack(&snap, image->data + image->at);
}

static size_t remembered_count(const struct cmmds_state *state)
{
	const struct state_client *client;
	size_t count = 0;

	TAILQ_FOREACH (client, &state->clients, link)
		for (unsigned i = 0; i < CMMDS_WINDOW; i++)
			count += client->window[i].sequence != 0;
	return count;
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

static void pack_clients(const struct cmmds_state *state,
			 struct state_image *image)
{
	Directory__Snapshot snap = DIRECTORY__SNAPSHOT__INIT;
	size_t count = remembered_count(state);
	Directory__SnapshotClient *clients =
		cmmds__alloc((count + 1) * sizeof(*clients));

	snap.clients = cmmds__alloc((count + 1) * sizeof(void *));
	fill_clients(state, &snap, clients);
	assert(snap.n_clients == count);
	image->clients_len = directory__snapshot__get_packed_size(&snap);
	image->clients = cmmds__alloc(image->clients_len + 1);
	directory__snapshot__pack(&snap, image->clients);
	free(snap.clients);
	free(clients);
}

int snapshot__begin(struct cmmds_state *state)
{
	Directory__Snapshot snap = DIRECTORY__SNAPSHOT__INIT;
	struct state_image *image = cmmds__alloc(sizeof(*image));
	size_t len;

	assert(state->image == NULL);
	state->image = image;
	state__init(&image->before);
	image->before.revision = state->revision;
	image->kind = 1;
	pack_clients(state, image);
	snap.version = CMMDS_SNAPSHOT_VERSION;
	snap.applied_index = state->applied_index;
	snap.revision = state->revision;
	snap.event_sequence = state->event_sequence;
	len = directory__snapshot__get_packed_size(&snap) +
	      state->packed_bytes + image->clients_len;
	if (len > CMMDS_SNAPSHOT_MAX - SNAPSHOT_HEAD) {
		snapshot__drop(state);
		return -EMSGSIZE;
	}
	image->len = SNAPSHOT_HEAD + len;
	image->data = malloc(image->len); /* touched as it is filled */
	if (image->data == NULL)
		abort();
	put_le64(image->data, SNAPSHOT_MAGIC);
	put_le32(image->data + 8, CMMDS_SNAPSHOT_VERSION);
	put_le32(image->data + 12, SNAPSHOT_FEATURES);
	put_le64(image->data + 16, len);
	image->at = SNAPSHOT_HEAD;
	image->at += directory__snapshot__pack(&snap, image->data + image->at);
	image->crc = crc32c_more(crc32c(image->data, 24),
				 image->data + SNAPSHOT_HEAD,
				 image->at - SNAPSHOT_HEAD);
	return 0;
}

void snapshot__keep(struct cmmds_state *state, const struct cmmds_entry *old)
{
	struct state_image *image = state->image;
	int rv;

	if (image == NULL || old->revision > image->before.revision)
		return;
	rv = state__load(&image->before, old->kind, old->key, old->key_len,
			 old->revision, old->value, old->value_len);
	assert(rv == 0); /* it is of this directory, and changed once since */
	(void)rv;
}

void snapshot__drop(struct cmmds_state *state)
{
	struct state_image *image = state->image;

	if (image == NULL)
		return;
	state->image = NULL;
	state__fini(&image->before);
	free(image->clients);
	free(image->data);
	free(image);
}

/* The next entry of the image's revision, as it was then. */
static const struct state_entry *next_entry(const struct state_image *image,
					    const struct state_entry **now,
					    const struct state_entry **before)
{
	const struct state_entry *e;

	while (*now != NULL && (*now)->pub.revision > image->before.revision)
		*now = state__next(*now);
	e = *now;
	if (e == NULL ||
	    (*before != NULL &&
	     tree__entry_compare(*before, e->pub.key, e->pub.key_len) < 0)) {
		e = *before;
		if (e != NULL)
			*before = state__next(e);
	} else {
		*now = state__next(e);
	}
	return e;
}

/* True: all entries of the kind are packed. */
static bool pack_some(struct cmmds_state *state, unsigned *room, size_t end)
{
	struct state_image *image = state->image;
	const void *after = image->within ? image->key : NULL;
	const struct state_entry *e = NULL, *now, *before;

	now = state__above(state, image->kind, after, image->key_len);
	before = state__above(&image->before, image->kind, after,
			      image->key_len);
	while (*room > 0 && image->at < end) {
		const struct state_entry *next =
			next_entry(image, &now, &before);

		if (next == NULL)
			return true;
		e = next;
		pack_entry(image, &e->pub);
		(*room)--;
	}
	if (e != NULL) {
		image->within = true;
		image->key_len = e->pub.key_len;
		memcpy(image->key, e->pub.key, e->pub.key_len);
	}
	return false;
}

bool snapshot__more(struct cmmds_state *state, uint8_t **out, size_t *len)
{
	struct state_image *image = state->image;
	size_t from = image->at;
	unsigned room = PART_ENTRIES;

	while (image->kind < CMMDS_KINDS &&
	       pack_some(state, &room, from + PART_BYTES)) {
		image->kind++;
		image->within = false;
	}
	if (image->kind == CMMDS_KINDS) {
		memcpy(image->data + image->at, image->clients,
		       image->clients_len);
		image->at += image->clients_len;
	}
	image->crc =
		crc32c_more(image->crc, image->data + from, image->at - from);
	if (image->kind < CMMDS_KINDS)
		return false;
	assert(image->at == image->len);
	put_le32(image->data + 24, image->crc);
	*out = image->data;
	*len = image->len;
	image->data = NULL;
	snapshot__drop(state);
	return true;
}

/* ---- and back ---- */

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
