/*
 * state_tree: the directory's entries, one ordered tree a kind: a treap whose
 * priorities follow from the keys, so that equal directories are equal trees.
 * Neighbours know each other.  A sum over the hashes of all entries is kept
 * beside them, and chains of those that belong to the same thing.
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <stdlib.h>

/* ---- hashing: sums, so that one change costs one entry ---- */

uint64_t tree__mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t tree__hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *b = data;

	h ^= len;
	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * 0x100000001b3ull;
	return tree__mix(h);
}

static uint64_t entry_hash(const struct cmmds_entry *e)
{
	uint64_t h =
		tree__hash(0xcbf29ce484222325ull ^ e->kind, e->key, e->key_len);

	return tree__mix(tree__hash(h, e->value, e->value_len) + e->revision);
}

/* ---- one ordered tree a kind: a treap, its priorities from the keys ---- */

int tree__key_compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
	size_t n = MIN(a_len, b_len);
	/* An empty key may have no address, which memcmp() must not see. */
	int c = n > 0 ? memcmp(a, b, n) : 0;

	if (c != 0)
		return c;
	return a_len < b_len ? -1 : a_len > b_len;
}

int tree__entry_compare(const struct state_entry *e, const void *key,
			size_t key_len)
{
	return tree__key_compare(e->pub.key, e->pub.key_len, key, key_len);
}

static void split(struct state_entry *t, const struct state_entry *at,
		  struct state_entry **left, struct state_entry **right)
{
	if (t == NULL) {
		*left = *right = NULL;
	} else if (tree__entry_compare(t, at->pub.key, at->pub.key_len) < 0) {
		*left = t;
		split(t->right, at, &t->right, right);
	} else {
		*right = t;
		split(t->left, at, left, &t->left);
	}
}

static struct state_entry *merge(struct state_entry *left,
				 struct state_entry *right)
{
	if (left == NULL)
		return right;
	if (right == NULL)
		return left;
	if (left->priority >= right->priority) {
		left->right = merge(left->right, right);
		return left;
	}
	right->left = merge(left, right->left);
	return right;
}

static struct state_entry **entry_place(struct cmmds_state *state,
					const struct state_entry *e)
{
	struct state_entry **place = &state->roots[e->pub.kind];

	while (*place != NULL && *place != e) {
		int c = tree__entry_compare(*place, e->pub.key, e->pub.key_len);

		assert(c != 0);
		place = c > 0 ? &(*place)->left : &(*place)->right;
	}
	return place;
}

static void order_insert(const struct cmmds_state *state, struct state_entry *e)
{
	struct state_entry *at = state->roots[e->pub.kind];

	e->prev = e->next = NULL;
	while (at != NULL) {
		if (tree__entry_compare(at, e->pub.key, e->pub.key_len) < 0) {
			e->prev = at;
			at = at->right;
		} else {
			e->next = at;
			at = at->left;
		}
	}
	if (e->prev != NULL)
		e->prev->next = e;
	if (e->next != NULL)
		e->next->prev = e;
}

static void order_remove(struct state_entry *e)
{
	if (e->prev != NULL)
		e->prev->next = e->next;
	if (e->next != NULL)
		e->next->prev = e->prev;
	e->prev = e->next = NULL;
}

/* ---- what an entry belongs to ---- */

/* False: it is not looked for by that. */
static bool belongs_to(const struct state_entry *e, const void **what,
		       size_t *len)
{
	const void *m = e->pub.message;
	const char *name = NULL;

	switch (e->pub.kind) {
	case CMMDS_VDISK:
		*what = ((const Directory__VDisk *)m)->oid.data;
		*len = ((const Directory__VDisk *)m)->oid.len;
		return true;
	case CMMDS_TARGET:
		name = ((const Directory__Target *)m)->iqn;
		break;
	case CMMDS_LUN:
		name = ((const Directory__Lun *)m)->vdisk;
		break;
	default:
		return false;
	}
	*what = name;
	*len = strlen(name);
	return true;
}

static unsigned bucket_of(enum cmmds_kind kind, const void *what, size_t len)
{
	return tree__hash(kind, what, len) % STATE_BUCKETS;
}

/* The first of its chain that is not before @e: they are in key order. */
static struct state_entry **chain_place(struct state_entry **place,
					const struct state_entry *e)
{
	while (*place != NULL &&
	       tree__entry_compare(*place, e->pub.key, e->pub.key_len) < 0)
		place = &(*place)->chain;
	return place;
}

static void chain_insert(struct cmmds_state *state, struct state_entry *e)
{
	struct state_entry **place;
	const void *what;
	size_t len;

	if (!belongs_to(e, &what, &len))
		return;
	place = chain_place(&state->chains[bucket_of(e->pub.kind, what, len)],
			    e);
	e->chain = *place;
	*place = e;
}

static void chain_remove(struct cmmds_state *state, struct state_entry *e)
{
	struct state_entry **place;
	const void *what;
	size_t len;

	if (!belongs_to(e, &what, &len))
		return;
	place = &state->chains[bucket_of(e->pub.kind, what, len)];
	while (*place != e)
		place = &(*place)->chain;
	*place = e->chain;
	e->chain = NULL;
}

const struct state_entry *state__of(const struct cmmds_state *state,
				    enum cmmds_kind kind, const void *what,
				    size_t len, const struct state_entry *after)
{
	const struct state_entry *e =
		after ? after->chain
		      : state->chains[bucket_of(kind, what, len)];
	const void *its;
	size_t its_len;

	for (; e != NULL; e = e->chain)
		if (e->pub.kind == kind && belongs_to(e, &its, &its_len) &&
		    tree__key_compare(its, its_len, what, len) == 0)
			break;
	return e;
}

/* A LUN's key is its target's name, a zero and its number. */
const struct state_entry *state__under(const struct cmmds_state *state,
				       const char *target,
				       const struct state_entry *after)
{
	size_t len = strlen(target) + 1;
	const struct state_entry *e =
		after ? state__next(after)
		      : state__above(state, CMMDS_LUN, target, len);

	return e != NULL && e->pub.key_len > len &&
			       memcmp(e->pub.key, target, len) == 0
		       ? e
		       : NULL;
}

/* ---- in and out ---- */

void tree__insert(struct cmmds_state *state, struct state_entry *e)
{
	struct state_entry **place = &state->roots[e->pub.kind];

	order_insert(state, e);
	chain_insert(state, e);
	while (*place != NULL && (*place)->priority >= e->priority) {
		int c = tree__entry_compare(*place, e->pub.key, e->pub.key_len);

		assert(c != 0);
		place = c > 0 ? &(*place)->left : &(*place)->right;
	}
	split(*place, e, &e->left, &e->right);
	*place = e;
	state->counts[e->pub.kind]++;
	state->entries_hash += e->hash;
	state->packed_bytes += e->packed;
}

void tree__remove(struct cmmds_state *state, struct state_entry *e)
{
	struct state_entry **place = entry_place(state, e);

	assert(*place == e);
	*place = merge(e->left, e->right);
	e->left = e->right = NULL;
	order_remove(e);
	chain_remove(state, e);
	state->counts[e->pub.kind]--;
	state->entries_hash -= e->hash;
	state->packed_bytes -= e->packed;
}

const struct state_entry *state__find(const struct cmmds_state *state,
				      enum cmmds_kind kind, const void *key,
				      size_t key_len)
{
	const struct state_entry *e;

	if (kind <= 0 || kind >= CMMDS_KINDS)
		return NULL;
	e = state->roots[kind];
	while (e != NULL) {
		int c = tree__entry_compare(e, key, key_len);

		if (c == 0)
			return e;
		e = c > 0 ? e->left : e->right;
	}
	return NULL;
}

const struct state_entry *state__above(const struct cmmds_state *state,
				       enum cmmds_kind kind, const void *key,
				       size_t key_len)
{
	const struct state_entry *e, *best = NULL;

	if (kind <= 0 || kind >= CMMDS_KINDS)
		return NULL;
	e = state->roots[kind];
	while (e != NULL) {
		if (key == NULL || tree__entry_compare(e, key, key_len) > 0) {
			best = e;
			e = e->left;
		} else {
			e = e->right;
		}
	}
	return best;
}

/* ---- entries ---- */

void tree__entry_free(struct state_entry *e)
{
	if (e == NULL)
		return;
	if (e->pub.message != NULL)
		protobuf_c_message_free_unpacked(
			(ProtobufCMessage *)e->pub.message, NULL);
	free((void *)e->pub.value);
	free((void *)e->pub.key);
	free(e);
}

/* Takes @message. */
struct state_entry *tree__entry_make(enum cmmds_kind kind, const void *key,
				     size_t key_len, uint64_t revision,
				     const void *value, size_t value_len,
				     ProtobufCMessage *message)
{
	struct state_entry *e = cmmds__alloc(sizeof(*e));

	e->pub.kind = kind;
	e->pub.key = cmmds__copy(key, key_len);
	e->pub.key_len = key_len;
	e->pub.revision = revision;
	e->pub.value = cmmds__copy(value, value_len);
	e->pub.value_len = value_len;
	e->pub.message = message;
	e->priority = tree__hash(0x9e3779b97f4a7c15ull, key, key_len);
	e->hash = entry_hash(&e->pub);
	e->packed = snapshot__entry_size(&e->pub);
	return e;
}

void tree__free(struct state_entry *e)
{
	if (e == NULL)
		return;
	tree__free(e->left);
	tree__free(e->right);
	tree__entry_free(e);
}
