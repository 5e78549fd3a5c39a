/*
 * admin_index: what a list looks up for each of its lines, put in order once: a
 * look through all of it for each line would take the loop from everybody else
 * for as long as that lasts.
 */
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* As the directory has them. */
static int by_target(const void *a, const void *b)
{
	const Directory__Lun *x = *(const Directory__Lun *const *)a;
	const Directory__Lun *y = *(const Directory__Lun *const *)b;
	int c = strcmp(x->target, y->target);

	return c != 0 ? c : (x->lun > y->lun) - (x->lun < y->lun);
}

static int by_vdisk(const void *a, const void *b)
{
	const Directory__Lun *x = *(const Directory__Lun *const *)a;
	const Directory__Lun *y = *(const Directory__Lun *const *)b;
	int c = strcmp(x->vdisk, y->vdisk);

	return c != 0 ? c : by_target(a, b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool room_for_one(void **p, size_t count, size_t size)
{
	void *more;

	/* There is room for the power of two at or above the count. */
	if ((count & (count - 1)) != 0)
		return true;
	more = realloc(*p, (count > 0 ? count * 2 : 1) * size);
	if (more != NULL)
		*p = more;
	return more != NULL;
}

static void add_session(const struct iscsi_session_info *info, void *arg)
{
	struct admin_index *x = arg;
	void *p = x->sessions;

	if (info->discovery || info->target == NULL || x->no_memory)
		return;
	x->no_memory =
		!room_for_one(&p, x->sessions_count, sizeof(*x->sessions));
	x->sessions = p;
	if (x->no_memory)
		return;
	snprintf(x->sessions[x->sessions_count++], sizeof(*x->sessions), "%s",
		 info->target);
}

void admin__index_open(struct admin_index *x, struct node *node,
		       enum admin_index_order order)
{
	const struct cmmds_entry *e = NULL;

	*x = (struct admin_index){ .node = node, .order = order };
	while ((e = cmmds_next(node->cmmds, CMMDS_LUN, e)) != NULL) {
		void *p = x->luns;

		x->no_memory =
			!room_for_one(&p, x->luns_count, sizeof(*x->luns));
		x->luns = p;
		if (x->no_memory)
			return;
		x->luns[x->luns_count++] = (const Directory__Lun *)e->message;
	}
	if (x->luns_count > 0)
		qsort(x->luns, x->luns_count, sizeof(*x->luns),
		      order == ADMIN_BY_VDISK ? by_vdisk : by_target);
	iscsi_session_each(node->iscsi, add_session, x);
	if (x->sessions_count > 0)
		qsort(x->sessions, x->sessions_count, sizeof(*x->sessions),
		      by_name);
}

void admin__index_close(struct admin_index *x)
{
	free(x->luns);
	free(x->sessions);
}

static const char *name_of(const struct admin_index *x, size_t at)
{
	return x->order == ADMIN_BY_VDISK ? x->luns[at]->vdisk
					  : x->luns[at]->target;
}

/* The first LUN of @name, if it has any. */
static size_t luns_from(const struct admin_index *x, const char *name)
{
	size_t low = 0, high = x->luns_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(name_of(x, mid), name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool luns_more(const struct admin_index *x, size_t at, const char *name)
{
	return at < x->luns_count && strcmp(name_of(x, at), name) == 0;
}

size_t admin__index_luns(struct admin_index *x, const char *name,
			 Admin__Lun ***out)
{
	size_t low = luns_from(x, name), high = low, n;

	while (luns_more(x, high, name))
		high++;
	*out = calloc(high - low + 1, sizeof(**out));
	for (n = 0; *out != NULL && low + n < high; n++) {
		(*out)[n] = admin__lun_answer(x->node, x->luns[low + n]);
		if ((*out)[n] == NULL)
			break;
	}
	x->no_memory |= *out == NULL || low + n < high;
	return n;
}

unsigned admin__index_sessions(const struct admin_index *x, const char *iqn)
{
	size_t low = 0, high = x->sessions_count;
	unsigned n = 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(x->sessions[mid], iqn) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < x->sessions_count && strcmp(x->sessions[low], iqn) == 0;
	     low++)
		n++;
	return n;
}

unsigned admin__index_used(const struct admin_index *x, const char *vdisk)
{
	const Directory__Target *t = NULL;
	unsigned n = 0;

	assert(x->order == ADMIN_BY_VDISK);
	for (size_t i = luns_from(x, vdisk); luns_more(x, i, vdisk); i++) {
		/* One target after the other: it may have it twice. */
		if (t != NULL && strcmp(t->name, x->luns[i]->target) == 0)
			continue;
		t = cmmds_target(x->node->cmmds, x->luns[i]->target);
		if (t != NULL)
			n += admin__index_sessions(x, t->iqn);
	}
	return n;
}
