/*
 * tomb: the deleted components of a disk (tomb_int.h).
 */
#include "lsom/lsom_int.h"

#include <errno.h>
#include <stdlib.h>

void lsom__tombs_init(struct lsom__tombs *tombs)
{
	TAILQ_INIT(&tombs->settled);
	TAILQ_INIT(&tombs->later);
	TAILQ_INIT(&tombs->changed);
}

static void list_free(struct lsom__tomb_list *list)
{
	struct lsom__tomb *t;

	while ((t = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, t, link);
		free(t);
	}
}

void lsom__tombs_fini(struct lsom__tombs *tombs)
{
	struct lsom__tomb *t, *next;

	TAILQ_FOREACH_SAFE (t, &tombs->changed, change, next)
		if (t->gone) /* in no other list */
			free(t);
	list_free(&tombs->settled);
	list_free(&tombs->later);
}

static struct lsom__tomb_list *list_of(struct lsom_disk *disk, uint64_t pos)
{
	return pos == LSOM__POS_LATER ? &disk->tombs.later
				      : &disk->tombs.settled;
}

static struct lsom__tomb **slot_of(struct lsom_disk *disk, uint64_t key)
{
	return &disk->tombs.by_key[key % LSOM__TOMBS_HASH];
}

struct lsom__tomb *lsom__tomb_find(const struct lsom_disk *disk, uint64_t key)
{
	struct lsom__tomb *t = disk->tombs.by_key[key % LSOM__TOMBS_HASH];

	while (t != NULL && t->key != key)
		t = t->key_next;
	return t;
}

static void changed(struct lsom_disk *disk, struct lsom__tomb *t)
{
	if (t->changed)
		return;
	t->changed = true;
	TAILQ_INSERT_TAIL(&disk->tombs.changed, t, change);
}

int lsom__tomb_add(struct lsom_disk *disk, uint64_t key, uint64_t pos,
		   bool stored)
{
	struct lsom__tomb *t;

	if (lsom__tomb_find(disk, key) != NULL)
		return 0;
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	t->key = key;
	t->pos = pos;
	t->key_next = *slot_of(disk, key);
	*slot_of(disk, key) = t;
	TAILQ_INSERT_TAIL(list_of(disk, pos), t, link);
	if (!stored)
		changed(disk, t);
	return 0;
}

void lsom__tomb_drop(struct lsom_disk *disk, struct lsom__tomb *tomb)
{
	struct lsom__tomb **at = slot_of(disk, tomb->key);

	while (*at != tomb)
		at = &(*at)->key_next;
	*at = tomb->key_next;
	TAILQ_REMOVE(list_of(disk, tomb->pos), tomb, link);
	tomb->gone = true;
	changed(disk, tomb);
}

void lsom__tombs_settle(struct lsom_disk *disk)
{
	struct lsom__tombs *tombs = &disk->tombs;
	struct lsom__tomb *t;

	while ((t = TAILQ_FIRST(&tombs->later)) != NULL) {
		TAILQ_REMOVE(&tombs->later, t, link);
		t->pos = disk->pos_next;
		TAILQ_INSERT_TAIL(&tombs->settled, t, link);
		changed(disk, t);
	}
}

void lsom__tomb_told(struct lsom_disk *disk, struct lsom__tomb *tomb)
{
	assert(tomb->changed);
	TAILQ_REMOVE(&disk->tombs.changed, tomb, change);
	tomb->changed = false;
	if (tomb->gone)
		free(tomb);
}
