/*
 * admin_index: what a list looks up for each of its lines.  Sessions are put in
 * order once: a look through all of them for each line would take long.
 */
#include "base/util.h"
#include "node/admin_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void admin__index_open(struct admin_index *x, struct node *node)
{
	*x = (struct admin_index){ .node = node };
	iscsi_session_each(node->iscsi, add_session, x);
	if (x->sessions_count > 0)
		qsort(x->sessions, x->sessions_count, sizeof(*x->sessions),
		      by_name);
}

void admin__index_close(struct admin_index *x)
{
	free(x->sessions);
}

/* The next LUN of target @name, or, if @exports, that the virtual disk @name is. */
static const struct cmmds_entry *lun_next(struct admin_index *x,
					  const char *name, bool exports,
					  const struct cmmds_entry *e)
{
	struct cmmds *cmmds = x->node->cmmds;

	return exports ? cmmds_of(cmmds, CMMDS_LUN, name, strlen(name), e)
		       : cmmds_under(cmmds, name, e);
}

static size_t luns_answer(struct admin_index *x, const char *name, bool exports,
			  Admin__Lun ***out)
{
	const struct cmmds_entry *e = NULL;
	size_t n = 0, room = 1;

	while ((e = lun_next(x, name, exports, e)) != NULL)
		room++;
	*out = calloc(room, sizeof(**out));
	while (*out != NULL && (e = lun_next(x, name, exports, e)) != NULL) {
		(*out)[n] = admin__lun_answer(x->node, (void *)e->message);
		if ((*out)[n] == NULL)
			break;
		n++;
	}
	x->no_memory |= *out == NULL || e != NULL;
	return n;
}

size_t admin__index_luns(struct admin_index *x, const char *name,
			 Admin__Lun ***out)
{
	return luns_answer(x, name, false, out);
}

size_t admin__index_exports(struct admin_index *x, const char *name,
			    Admin__Lun ***out)
{
	return luns_answer(x, name, true, out);
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
	struct cmmds *cmmds = x->node->cmmds;
	const struct cmmds_entry *e = NULL;
	const Directory__Target *t = NULL;
	unsigned n = 0;

	while ((e = cmmds_of(cmmds, CMMDS_LUN, vdisk, strlen(vdisk), e)) !=
	       NULL) {
		const Directory__Lun *l = (void *)e->message;

		/* One target after the other: it may have it twice. */
		if (t != NULL && strcmp(t->name, l->target) == 0)
			continue;
		t = cmmds_target(cmmds, l->target);
		if (t != NULL)
			n += admin__index_sessions(x, t->iqn);
	}
	return n;
}
